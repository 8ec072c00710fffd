// Harness of mHC: checks against double and times passes over all sites.
//
// usage: mhc_harness check            cases over shapes and edges
//        mhc_harness check-small      the few small ones, for compute-sanitizer
//        mhc_harness time [--json FILE] [--sites N] ROWS[:SETS] ...     for example 256 256:16
#include "tests/gpu/mhc_time.cuh"

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "check") return baton::gpu_test::check_mhc_all(false);
  if (args.size() == 1 && args[0] == "check-small") return baton::gpu_test::check_mhc_all(true);
  if (args.size() >= 2 && args[0] == "time") return baton::gpu_test::time_mhc(std::vector<std::string>(args.begin() + 1, args.end()));
  std::fprintf(stderr, "usage: mhc_harness check | check-small | time [--json FILE] [--sites N] ROWS[:SETS] ...\n");
  return 2;
}
