// Harness of the indexer: checks scores against double and choices exactly, and times whole stacks of layers.
//
// usage: indexer_harness check            cases over shapes and edges
//        indexer_harness check-small      the few small ones, for compute-sanitizer
//        indexer_harness time [--json FILE] [--layers N] [--context TOKENS] ROWS[:SPLITS] ...     for example 256 8:32
#include "tests/gpu/indexer_time.cuh"

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "check") return baton::gpu_test::check_indexer_all(false);
  if (args.size() == 1 && args[0] == "check-small") return baton::gpu_test::check_indexer_all(true);
  if (args.size() >= 2 && args[0] == "time") return baton::gpu_test::time_indexer(std::vector<std::string>(args.begin() + 1, args.end()));
  std::fprintf(stderr,
               "usage: indexer_harness check | check-small | time [--json FILE] [--layers N] [--context TOKENS] ROWS[:SPLITS] ...\n");
  return 2;
}
