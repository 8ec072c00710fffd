// The prefill kernel of sparse attention, run on the CPU from its own source, against double.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "ops/cuda/mla_sparse/prefill.cuh"

namespace baton::cuda::mla {

// The kernel's dynamic shared memory.
alignas(1024) std::byte shared_memory[sizeof(PrefillShared)];

namespace {

constexpr int64_t kPageOffset = 256;
constexpr int64_t kPageStride = kPageOffset + ops::kPageTokens * kDim * 2;

struct Case {
  unsigned seed;
  int position;  // of the first of two rows
  int capacity;  // pools
  int heads = kHeads;
  int pool = 4;
  float sharpness = 1;
  bool rising = false;  // later tokens score higher: references keep moving
};

void check(const Case& c) {
  SCOPED_TRACE("seed " + std::to_string(c.seed));
  constexpr int kRows = 2;
  std::mt19937 random(c.seed);
  std::normal_distribution<float> normal;
  const int table = (c.position + kRows) / ops::kPageTokens + 1;
  std::vector<int32_t> tables(static_cast<size_t>(table));
  std::iota(tables.begin(), tables.end(), 0);
  std::shuffle(tables.begin(), tables.end(), random);
  std::vector<std::byte> pages(static_cast<size_t>(table) * kPageStride, std::byte{0xFF});
  const auto cache_row = [&](int position) {
    return pages.data() + tables[static_cast<size_t>(position / ops::kPageTokens)] * kPageStride + kPageOffset +
           position % ops::kPageTokens * (kDim * 2);
  };
  for (int t = 0; t < c.position + kRows; ++t)
    for (int i = 0; i < kDim; ++i) {
      const bf16 x = to_bf16(c.rising && i == 0 ? static_cast<float>(t) / 50 : normal(random));
      std::memcpy(cache_row(t) + 2 * i, &x, 2);
    }
  const int64_t width = int64_t{c.heads} * kDim;
  std::vector<bf16> q(static_cast<size_t>(kRows * width)), out(q.size() + kDim, to_bf16(-77));
  for (size_t i = 0; i < q.size(); ++i) q[i] = to_bf16(c.rising && i % kDim == 0 ? 20.0F : c.sharpness * normal(random));
  std::vector<int32_t> row_sequence(kRows, 0), positions, pools(static_cast<size_t>(kRows * c.capacity)), counts, tails;
  for (int r = 0; r < kRows; ++r) {
    positions.push_back(c.position + r);
    const int closed = (c.position + r + 1) / c.pool;
    std::vector<int32_t> all(static_cast<size_t>(closed));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    all.resize(static_cast<size_t>(std::min(closed, c.capacity)));
    std::sort(all.begin(), all.end());
    std::copy(all.begin(), all.end(), pools.begin() + r * c.capacity);
    counts.push_back(static_cast<int32_t>(all.size()));
    tails.push_back(closed * c.pool);
  }
  AttendParams p{};
  p.q = reinterpret_cast<const std::byte*>(q.data());
  p.out = reinterpret_cast<std::byte*>(out.data());
  p.q_stride = p.out_stride = width;
  p.pages = pages.data() + kPageOffset;
  p.page_stride = kPageStride;
  p.row_sequence = row_sequence.data();
  p.positions = positions.data();
  p.page_tables = tables.data();
  p.pools = pools.data();
  p.counts = counts.data();
  p.tail_begin = tails.data();
  p.page_table_stride = table;
  p.pool_capacity = c.capacity;
  p.pool_log2 = std::countr_zero(static_cast<unsigned>(c.pool));
  p.rows = kRows;
  p.heads = c.heads;
  p.head_blocks = (c.heads + kHeads - 1) / kHeads;
  p.splits = 1;
  p.scale_log2 = 0.0625F * 1.44269504F;
  emulated::shared = shared_memory;
  for (unsigned block = 0; block < static_cast<unsigned>(kRows * p.head_blocks); ++block) {
    std::memset(shared_memory, 0xFF, sizeof(shared_memory));
    emulated::run_block(kAttendThreads, block, [&] { attend_prefill(p); });
  }
  double error = 0;
  double size = 0;
  for (int r = 0; r < kRows; ++r) {
    std::vector<int> tokens;
    for (int i = 0; i < counts[static_cast<size_t>(r)]; ++i)
      for (int t = 0; t < c.pool; ++t) tokens.push_back(pools[static_cast<size_t>(r * c.capacity + i)] * c.pool + t);
    for (int t = tails[static_cast<size_t>(r)]; t <= c.position + r; ++t) tokens.push_back(t);
    std::vector<std::vector<double>> rows;
    for (const int t : tokens) {
      std::vector<double> row;
      for (int i = 0; i < kDim; ++i) {
        bf16 x{};
        std::memcpy(&x, cache_row(t) + 2 * i, 2);
        row.push_back(static_cast<double>(to_float(x)));
      }
      rows.push_back(row);
    }
    for (int h = 0; h < c.heads; ++h) {
      const auto at = static_cast<size_t>(r * width + h * kDim);
      std::vector<double> weights;
      double most = -INFINITY;
      for (const auto& row : rows) {
        double dot = 0;
        for (size_t i = 0; i < kDim; ++i) dot += row[i] * static_cast<double>(to_float(q[at + i]));
        weights.push_back(dot * 0.0625);
        most = std::max(most, weights.back());
      }
      double sum = 0;
      for (double& w : weights) sum += w = std::exp(w - most);
      for (size_t i = 0; i < kDim; ++i) {
        double o = 0;
        for (size_t t = 0; t < rows.size(); ++t) o += weights[t] * rows[t][i];
        o /= sum;
        const double d = static_cast<double>(to_float(out[at + i])) - o;
        error += d * d;
        size += o * o;
      }
    }
  }
  EXPECT_LT(std::sqrt(error / size), 3.5e-3);
  EXPECT_EQ(to_float(out.back()), -77) << "written behind the end";
}

TEST(EmulatedMlaPrefill, FewTokensAndEdgesOfTiles) {
  check({1, 0, 512});
  check({2, 8, 512});
  check({3, 62, 512});   // 63 and 64 tokens
  check({4, 126, 512});  // one pair of tiles, and a third tile of one token
  check({5, 190, 512});
}
TEST(EmulatedMlaPrefill, SelectedPools) {
  check({6, 700, 32});
  check({7, 1500, 200});
  check({8, 400, 64, kHeads, 1});
  check({9, 900, 8, kHeads, 64});
}
TEST(EmulatedMlaPrefill, OtherNumbersOfHeads) {
  check({10, 200, 512, 5});
  check({11, 100, 512, 80});
}
TEST(EmulatedMlaPrefill, ReferencesThatMove) {
  check({12, 600, 512, kHeads, 4, 8});
  check({13, 600, 512, kHeads, 4, 1, true});
}

}  // namespace
}  // namespace baton::cuda::mla
