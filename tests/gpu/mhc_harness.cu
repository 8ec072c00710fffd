// Harness of mHC: checks against double and times passes over all sites (for example 256 256:16: sets of streams in turn).
#include "tests/gpu/mhc_time.cuh"

int main(int argc, char** argv) {
  using namespace baton::gpu_test;
  return harness_main(argc, argv, {"mhc_harness", "ROWS[:SETS]", {{"sites", 90}}, check_mhc_all, time_mhc});
}
