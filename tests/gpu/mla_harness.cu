// Harness of sparse attention: checks against double and times whole stacks of layers (for example 256:fp8 8:bf16).
//
// Shapes: ROWS:TYPE[:SPLITS], eight rows a request; ROWS:TYPE:prompt, rows of one request; ROWS:bf16:prefill, these by the kernel for many
// rows
#include "tests/gpu/mla_check.cuh"
#include "tests/gpu/mla_time.cuh"

int main(int argc, char** argv) {
  using namespace baton::gpu_test;
  return harness_main(
      argc, argv, {"mla_harness", "ROWS:TYPE[:SPLITS|:prompt|:prefill]", {{"layers", 11}, {"context", 65536}}, check_mla_all, time_mla});
}
