// Harness of the indexer: checks scores against double and choices exactly, and times whole stacks of layers (for example 256 8:32).
#include "tests/gpu/indexer_time.cuh"

int main(int argc, char** argv) {
  using namespace baton::gpu_test;
  return harness_main(argc, argv,
                      {"indexer_harness", "ROWS[:SPLITS]", {{"layers", 11}, {"context", 65536}}, check_indexer_all, time_indexer});
}
