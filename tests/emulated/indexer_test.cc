// Both kernels of the indexer's choice, run on the CPU from their own sources: scores against double, choices exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "ops/cuda/indexer/score.cuh"
#include "ops/cuda/indexer/select.cuh"

namespace baton::cuda::indexer {

// The kernels' dynamic shared memory.
alignas(1024) std::byte shared_memory[std::max(sizeof(ScoreShared), sizeof(SelectShared))];

namespace {

constexpr int64_t kPageOffset = 528;
constexpr int64_t kPageStride = 3072;

// Codes times scale of the 32 queries of a row, rounded as the CPU op does.
std::vector<double> rounded_queries(const bf16* q) {
  std::vector<double> out;
  for (int h = 0; h < kHeads; ++h) {
    float x[kDim];
    for (int i = 0; i < kDim; ++i) x[i] = to_float(q[h * kDim + i]);
    for (int half = 1; half < kDim; half *= 2)
      for (int i = 0; i < kDim; i += 2 * half)
        for (int j = i; j < i + half; ++j) {
          const float a = x[j];
          const float b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
    float largest = 0;
    for (float& v : x) largest = std::max(largest, std::fabs(v *= 0.08838834764831845F));
    const float scale = std::exp2(std::ceil(std::log2(std::max(largest, 1e-4F) / 448.0F)));
    for (const float v : x) out.push_back(static_cast<double>(to_float(to_e4m3(v / scale))) * static_cast<double>(scale));
  }
  return out;
}

struct Rows {
  int position;  // of the first
  int count;
};

// Sequences of rows with random pages; runs both kernels and compares all rows.
void check_rows(unsigned seed, const std::vector<Rows>& sequences, int capacity, int splits, bool alike = false) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  int last = 0;
  for (const Rows& s : sequences) last = std::max(last, s.position + s.count);
  const int table = last / 64 + 1;
  std::vector<int32_t> tables(sequences.size() * static_cast<size_t>(table)), row_sequence, positions;
  std::iota(tables.begin(), tables.end(), 0);
  std::shuffle(tables.begin(), tables.end(), random);
  std::vector<std::byte> pages(tables.size() * kPageStride);
  for (size_t page = 0; page < tables.size(); ++page) {
    std::byte* to = pages.data() + page * kPageStride + kPageOffset;
    for (int k = 0; k < kPageKeys * kDim; ++k)
      to[k] = std::byte{alike ? to_e4m3(static_cast<float>(k % kDim % 7) - 3).bits : to_e4m3(100 * normal(random)).bits};
    for (int k = 0; k < kPageKeys; ++k) {
      const float scale = alike ? 0.5F : std::ldexp(1.0F, -static_cast<int>(random() % 3));
      std::memcpy(to + kPageBytes + k * 4, &scale, 4);
    }
  }
  for (size_t s = 0; s < sequences.size(); ++s)
    for (int i = 0; i < sequences[s].count; ++i) {
      row_sequence.push_back(static_cast<int32_t>(s));
      positions.push_back(sequences[s].position + i);
    }
  const size_t m = positions.size();
  std::vector<bf16> q(m * kHeads * kDim);
  for (bf16& x : q) x = to_bf16(normal(random));
  std::vector<float> weights(m * kHeads);
  for (float& w : weights) w = normal(random);

  SelectParams p{};
  p.q = reinterpret_cast<const std::byte*>(q.data());
  p.weights = weights.data();
  p.q_stride = kHeads * kDim;
  p.weight_stride = kHeads;
  p.pages = pages.data() + kPageOffset;
  p.page_stride = kPageStride;
  p.row_sequence = row_sequence.data();
  p.positions = positions.data();
  p.page_tables = tables.data();
  p.score_stride = (int64_t{table} * kPageKeys + kTileKeys - 1) / kTileKeys * kTileKeys;
  p.page_table_stride = table;
  p.capacity = capacity;
  p.rows = static_cast<int32_t>(m);
  p.splits = splits;
  std::vector<float> scores(m * static_cast<size_t>(p.score_stride), NAN);
  std::vector<int32_t> pools(m * static_cast<size_t>(capacity), -1), counts(m, -1), tails(m, -1);
  p.scores = scores.data();
  p.pools = pools.data();
  p.counts = counts.data();
  p.tail_begin = tails.data();
  const CUtensorMap map{p.pages, kDim, kPageKeys};
  emulated::shared = shared_memory;
  const auto groups = static_cast<unsigned>((m + kGroupRows - 1) / kGroupRows);
  for (unsigned block = 0; block < groups * static_cast<unsigned>(splits); ++block) {
    std::memset(shared_memory, 0xFF, sizeof(shared_memory));
    emulated::run_block(kScoreThreads, block, [&] { score_rows(p, map); });
  }
  for (size_t r = 0; r < m; ++r) {
    SCOPED_TRACE("row " + std::to_string(r));
    std::memset(shared_memory, 0xFF, sizeof(shared_memory));
    emulated::run_block(kSelectThreads, static_cast<unsigned>(r), [&] { select_rows<16>(p); });
    const int closed = (positions[r] + 1) / kPool;
    const int count = std::min(closed, capacity);
    EXPECT_EQ(counts[r], count);
    EXPECT_EQ(tails[r], closed * kPool);
    std::vector<int32_t> best(static_cast<size_t>(closed));
    std::iota(best.begin(), best.end(), 0);
    if (closed > capacity) {
      const float* row = &scores[r * static_cast<size_t>(p.score_stride)];
      const std::vector<double> query = rounded_queries(&q[r * kHeads * kDim]);
      double worst = 0;
      for (int k = 0; k < closed; ++k) {
        const std::byte* page = p.pages + tables[static_cast<size_t>(row_sequence[r] * table + k / kPageKeys)] * kPageStride;
        float scale = 0;
        std::memcpy(&scale, page + kPageBytes + k % kPageKeys * 4, 4);
        double sum = 0, size = 0;
        for (int h = 0; h < kHeads; ++h) {
          double dot = 0, terms = 0;
          for (int i = 0; i < kDim; ++i) {
            const double x = query[static_cast<size_t>(h * kDim + i)] *
                             static_cast<double>(to_float(e4m3{std::to_integer<uint8_t>(page[k % kPageKeys * kDim + i])}));
            dot += x;
            terms += std::fabs(x);
          }
          const double w = static_cast<double>(weights[r * kHeads + static_cast<size_t>(h)]) / 64 * static_cast<double>(scale);
          sum += w * std::max(dot, 0.0);
          size += std::fabs(w) * terms;
        }
        worst = std::max(worst, std::fabs(static_cast<double>(row[k]) - sum) / size);
      }
      EXPECT_LT(worst, 1e-6);
      std::stable_sort(best.begin(), best.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      best.resize(static_cast<size_t>(capacity));
      std::sort(best.begin(), best.end());
    }
    EXPECT_TRUE(std::equal(best.begin(), best.end(), pools.begin() + static_cast<std::ptrdiff_t>(r) * capacity));
  }
}

TEST(EmulatedIndexer, ScoresAndChoicesOfSeveralSequences) {
  check_rows(1, {{700, 8}, {130, 3}, {61, 2}}, 16, 1);
  check_rows(3, {{2500, 1}, {900, 2}, {40, 1}, {1000, 3}, {400, 1}}, 64, 3);
  check_rows(4, {{900, 8}}, 16, 2, true);
}
// More tiles than stages: the ring comes round, also in the middle of a block's runs.
TEST(EmulatedIndexer, RingComesRound) {
  check_rows(5, {{2600, 3}, {3000, 2}}, 512, 1);
  check_rows(6, {{9000, 2}}, 100, 1);
}

// The choice alone, on scores of every kind.
template <int kKept>
void check_choice(unsigned seed, int count, int capacity, const std::string& kind) {
  SCOPED_TRACE(kind + " " + std::to_string(count) + " of which " + std::to_string(capacity) + ", seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scores(static_cast<size_t>(count) + 64, NAN);
  for (int i = 0; i < count; ++i) {
    float& s = scores[static_cast<size_t>(i)];
    s = normal(random);
    if (kind == "equal") s = 3;
    if (kind == "few") s = static_cast<float>(random() % 3) - 1;
    if (kind == "zeros") s = random() % 2 != 0 ? 0.0F : -0.0F;
    if (kind == "nan" && random() % 4 == 0) s = random() % 2 != 0 ? NAN : -INFINITY;
    if (kind == "infinite" && random() % 8 == 0) s = INFINITY;
    if (kind == "rising") s = static_cast<float>(i);
    if (kind == "falling") s = -static_cast<float>(i);
    if (kind == "columns" && i % kSelectThreads >= 100) s -= 1000;  // the best are few threads'
  }
  std::vector<int32_t> pools(static_cast<size_t>(capacity) + 1, -1);
  int32_t position = count * kPool, chosen = -1, tail = -1;
  SelectParams p{};
  p.scores = scores.data();
  p.pools = pools.data();
  p.counts = &chosen;
  p.tail_begin = &tail;
  p.positions = &position;
  p.capacity = capacity;
  emulated::shared = shared_memory;
  std::memset(shared_memory, 0xFF, sizeof(shared_memory));
  emulated::run_block(kSelectThreads, 0, [&] { select_rows<kKept>(p); });
  std::vector<int32_t> best(static_cast<size_t>(count));
  std::iota(best.begin(), best.end(), 0);
  const auto value = [&](int32_t i) { return std::isnan(scores[static_cast<size_t>(i)]) ? -INFINITY : scores[static_cast<size_t>(i)]; };
  std::stable_sort(best.begin(), best.end(), [&](int32_t a, int32_t b) { return value(a) > value(b); });
  best.resize(static_cast<size_t>(std::min(count, capacity)));
  std::sort(best.begin(), best.end());
  EXPECT_EQ(pools.back(), -1) << "written behind the end";
  pools.resize(best.size());
  EXPECT_EQ(pools, best);
}

TEST(EmulatedIndexer, ChoiceAmongScoresOfEveryKind) {
  unsigned seed = 100;
  for (const char* kind : {"normal", "equal", "few", "zeros", "nan", "infinite", "rising", "columns"})
    check_choice<16>(++seed, 16384, 512, kind);
  check_choice<16>(++seed, 700, 512, "nan");
  check_choice<16>(++seed, 513, 512, "falling");
  check_choice<16>(++seed, 5000, 1024, "normal");
  check_choice<16>(++seed, 1500, 1024, "normal");
  check_choice<16>(++seed, 2500, 1, "few");
  check_choice<16>(++seed, 40, 512, "normal");
  check_choice<32>(++seed, 25000, 512, "few");
  check_choice<0>(++seed, 9000, 512, "few");
}

}  // namespace
}  // namespace baton::cuda::indexer
