// Harness of KDA: checks against double on the CPU and times a cycle's layers.
//
// Shapes: REQUESTS:ROWS:FOLD:MODE:STATE[:memory], MODE fused, apart, fold, verify; STATE bf16, fp32; for example 32:8:8:fused:bf16
//         chunk:ROWS[:STATE[:SLAB]]   prefill of one sequence, for example chunk:8192:bf16
#include "tests/gpu/harness.h"
#include "tests/gpu/kda_time.cuh"

namespace baton::gpu_test {
namespace {

std::vector<KdaSequence> ragged(uint64_t seed, int count) {
  std::vector<KdaSequence> s;
  for (int i = 0; i < count; ++i) {
    const uint64_t m = mix(seed * 131 + static_cast<uint64_t>(i));
    s.push_back({static_cast<int32_t>(m % 9), static_cast<int32_t>((m >> 8) % 3 != 0), static_cast<int32_t>((m >> 16) % 9)});
  }
  return s;
}

int check_chunks(bool small) {
  std::vector<KdaCase> cases;
  for (const DType state : {DType::kF32, DType::kBF16}) {
    const auto add = [&](const char* name, int64_t heads, std::vector<KdaSequence> sequences, auto... set) {
      KdaCase c{name, heads, state, std::move(sequences)};
      c.seed = cases.size() + 100;
      (set(c), ...);
      cases.push_back(c);
    };
    const auto values = [](const char* v) { return [v](KdaCase& c) { c.values = v; }; };
    add("one chunk", 8, {{64, 0, 0, 0}});
    add("ragged chunks", 8, {{130, 0, 0, 0}, {9, 0, 0, 37}, {71, 0, 0, 60}});
    if (small) continue;
    add("four chunks", 8, {{256, 0, 0, 64}});
    add("others left alone", 8, {{8, 0, 0, 0}, {0, 0, 0, 0}, {100, 0, 0, 13}, {20, 1, 0, 5}}, [](KdaCase& c) { c.padding = 24; });
    add("closed and open gates", 8, {{200, 0, 0, 0}, {77, 0, 0, 3}}, values("closed"));
    add("zeros", 8, {{70, 0, 0, 0}}, values("zeros"));
    add("large inputs", 8, {{200, 0, 0, 1}}, values("large"));
    add("long", 8, {{1500, 0, 0, 100}});
    add("released heads", 64, {{600, 0, 0, 0}, {300, 0, 0, 700}});
  }
  int failed = 0;
  for (const auto& c : cases) {
    const KdaErrors e = check_chunk_case(c);
    std::printf("chunks: %-24s %s  %s  y rel %.5f, all %.5f, of a place %.5f  state rel %.2e  seed %lu  %s\n", c.name.c_str(),
                c.state == DType::kBF16 ? "bf16" : "fp32", e.failures.empty() ? "ok  " : "FAIL", e.y, e.y_all, e.y_place, e.state, c.seed,
                e.failures.c_str());
    std::fflush(stdout);
    failed += e.failures.empty() ? 0 : 1;
  }
  return failed;
}

// Cases that failed.
int check(bool small) {
  std::vector<KdaCase> cases;
  for (const DType state : {DType::kF32, DType::kBF16}) {
    const auto add = [&](const char* name, int64_t heads, std::vector<KdaSequence> sequences, auto... set) {
      KdaCase c{name, heads, state, std::move(sequences)};
      c.seed = cases.size() + 1;
      (set(c), ...);
      cases.push_back(c);
    };
    const auto values = [](const char* v) { return [v](KdaCase& c) { c.values = v; }; };
    add("verify of eight", 8, {{8, 1, 0}});
    add("fold and verify", 8, {{8, 1, 8}, {8, 1, 3}});
    add("one row advances", 8, {{1, 0, 0}, {1, 0, 0}, {1, 0, 1}});
    add("ragged", 8, ragged(5, 7));
    if (small) continue;
    add("no rows", 8, {{0, 1, 0}, {0, 0, 0}});
    add("fold alone", 16, {{0, 1, 5}, {0, 1, 8}, {0, 0, 1}});
    add("one of each", 8, {{0, 1, 0}, {1, 1, 0}, {1, 0, 8}, {8, 0, 8}, {8, 1, 8}, {3, 1, 1}, {2, 0, 2}, {5, 1, 2}});
    add("padded rows", 8, ragged(6, 5), [](KdaCase& c) { c.padding = 24; });
    add("short ring", 8, {{3, 1, 3}, {2, 1, 1}}, [](KdaCase& c) { c.ring_rows = 3; });
    add("closed and open gates", 8, ragged(7, 6), values("closed"));
    add("zeros", 8, ragged(8, 4), values("zeros"));
    add("large inputs", 8, ragged(9, 6), values("large"));
    add("released heads", 64, ragged(10, 12));
    add("released heads, full", 64, std::vector<KdaSequence>(32, {8, 1, 8}));
  }
  int failed = 0;
  for (const auto& c : cases) {
    const KdaErrors e = check_kda_case(c);
    std::printf("%-24s %s  %s  y rel %.5f  state rel %.2e  seed %lu  %s\n", c.name.c_str(), c.state == DType::kBF16 ? "bf16" : "fp32",
                e.failures.empty() ? "ok  " : "FAIL", e.y, e.state, c.seed, e.failures.c_str());
    std::fflush(stdout);
    failed += e.failures.empty() ? 0 : 1;
  }
  return failed + check_chunks(small);
}

int time_shapes(const TimeRequest& request) {
  const auto layers = static_cast<int>(request.options.at("layers"));
  const int64_t heads = request.options.at("heads");
  std::unique_ptr<KdaStack> stack;
  for (const auto& shape : request.shapes) {
    const auto parts = shape_parts(shape);
    if (parts[0] == "chunk") {
      time_kda_chunk(heads, layers, shape_number(parts, 1), parts.size() > 2 && parts[2] == "fp32" ? DType::kF32 : DType::kBF16,
                     static_cast<int32_t>(shape_number(parts, 3, kda::kSlabChunks)), request.json);
      continue;
    }
    if (parts.size() < 5) {
      std::fprintf(stderr, "%s: want REQUESTS:ROWS:FOLD:MODE:STATE[:memory]\n", shape.c_str());
      return 2;
    }
    const auto slots = static_cast<int>(shape_number(parts, 0));
    const DType state = parts[4] == "fp32" ? DType::kF32 : DType::kBF16;
    if (stack == nullptr || stack->slots != slots || stack->state != state) {
      stack.reset();
      stack = std::make_unique<KdaStack>(heads, layers, slots, state);
    }
    time_kda_decode(*stack, static_cast<int>(shape_number(parts, 1)), static_cast<int>(shape_number(parts, 2)), parts[3], parts.size() > 5,
                    request.json);
  }
  return 0;
}

}  // namespace
}  // namespace baton::gpu_test

int main(int argc, char** argv) {
  using namespace baton::gpu_test;
  return harness_main(argc, argv,
                      {"kda_harness", "REQUESTS:ROWS:FOLD:MODE:STATE | chunk:ROWS", {{"layers", 34}, {"heads", 64}}, check, time_shapes});
}
