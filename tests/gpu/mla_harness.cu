// Harness of sparse attention: checks against double and times whole stacks of layers.
//
// usage: mla_harness check            cases over shapes and edges
//        mla_harness check-small      the few small ones, for compute-sanitizer
//        mla_harness time [--json FILE] [--layers N] [--context TOKENS] ROWS:TYPE[:SPLITS] ...     for example 256:fp8 8:bf16
#include "tests/gpu/mla_check.cuh"
#include "tests/gpu/mla_time.cuh"

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "check") return baton::gpu_test::check_mla_all(false);
  if (args.size() == 1 && args[0] == "check-small") return baton::gpu_test::check_mla_all(true);
  if (args.size() >= 2 && args[0] == "time") return baton::gpu_test::time_mla(std::vector<std::string>(args.begin() + 1, args.end()));
  std::fprintf(stderr,
               "usage: mla_harness check | check-small | time [--json FILE] [--layers N] [--context TOKENS] ROWS:TYPE[:SPLITS] ...\n");
  return 2;
}
