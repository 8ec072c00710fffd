// Indexer and latent attention: pools, choices and paging against plain restatements in double.
#include <numeric>

#include "ops/cpu/test_support.h"

namespace baton::cpu::testing {
namespace {

// One sequence over shuffled pages and one slot.
struct Caches {
  int64_t pages_count;
  std::vector<int32_t> table;
  std::vector<std::byte> pages;
  std::vector<std::byte> slot;
  ops::IndexerLayout index;
  ops::LatentLayout latent;
  int64_t page_bytes;
  ops::SequenceRows sequence{};
  std::vector<int32_t> owners, positions;

  Caches(int64_t tokens, int64_t index_dim, int32_t pool, int64_t latent_dim, DType type)
      : pages_count((tokens + 63) / 64 + 2), table(static_cast<size_t>(pages_count)) {
    std::iota(table.rbegin(), table.rend(), 0);
    const int64_t scales = type == DType::kF8E4M3 ? (latent_dim + 127) / 128 * 4 : 0;
    latent = {latent_dim, 0, latent_dim * dtype_bytes(type) + scales, type};
    index.dim = index_dim;
    index.pool = pool;
    index.page_offset = align_up(64 * latent.row_bytes, 64);
    index.ring_tokens = static_cast<int32_t>(align_up(pool + 8, pool));
    index.dtype = type;
    page_bytes = align_up(index.page_offset + 64 / pool * (index_dim * dtype_bytes(type) + 4), 256);
    pages.resize(static_cast<size_t>(pages_count * page_bytes));
    slot.resize(static_cast<size_t>(index.ring_tokens * 2 * index_dim * 4));
  }
  ops::BatchView batch(int64_t first, int64_t count) {
    sequence = {0, static_cast<int32_t>(count), static_cast<int32_t>(first), 0, 0};
    owners.assign(static_cast<size_t>(count), 0);
    positions.resize(static_cast<size_t>(count));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    ops::BatchView b;
    b.sequences = &sequence;
    b.sequence_count = 1;
    b.row_count = static_cast<int32_t>(count);
    b.row_sequence = owners.data();
    b.positions = positions.data();
    b.page_tables = table.data();
    b.page_table_stride = static_cast<int32_t>(pages_count);
    return b;
  }
  ops::PagePoolView page_pool() { return {pages.data(), page_bytes}; }
  ops::SlotPoolView slot_pool() { return {slot.data(), static_cast<int64_t>(slot.size())}; }
  // Pooled row p as floats (kF32 caches).
  const float* pooled(int64_t p) const {
    const int64_t token = p * index.pool;
    const std::byte* page = pages.data() + table[static_cast<size_t>(token / 64)] * page_bytes;
    return reinterpret_cast<const float*>(page + index.page_offset) + token % 64 / index.pool * index.dim;
  }
};

struct IndexData {
  std::vector<float> key, gamma, weight, bias, ape, q, head_weights;
  IndexData(Random& r, int64_t n, int64_t dim, int64_t pool, int64_t heads)
      : key(r.normal(n * dim)), gamma(r.normal(n * dim)), weight(r.normal(dim)), bias(r.normal(dim)), ape(r.normal(pool * dim)),
        q(r.normal(n * heads * dim)), head_weights(r.normal(n * heads)) {}
};

void write_keys(OpRunner& runner, Caches& c, IndexData& d, int64_t n, int64_t first, int64_t count) {
  ops::IndexerKeysParams p;
  p.batch = c.batch(first, count);
  p.key = view(d.key, n).row_range(first, count);
  p.gamma = view(d.gamma, n).row_range(first, count);
  p.norm_weight = d.weight.data();
  p.norm_bias = d.bias.data();
  p.norm_eps = 1e-6F;
  p.ape = d.ape.data();
  p.pages = c.page_pool();
  p.slots = c.slot_pool();
  p.layout = c.index;
  runner.run(runner.ops().indexer_keys, p);
}

struct Chosen {
  std::vector<int32_t> pools, counts, tails;
  ops::Selection selection;
  Chosen(int64_t rows, int32_t capacity)
      : pools(static_cast<size_t>(rows * capacity)), counts(static_cast<size_t>(rows)),
        tails(static_cast<size_t>(rows)), selection{pools.data(), counts.data(), tails.data(), capacity} {}
};

TEST(Indexer, PooledKeysMatchDoubleForEveryChunkingAndPool) {
  for (const Isa isa : machine_isas()) {
    for (const int32_t pool : {1, 2, 4, 16}) {
      const int64_t n = 150;
      const int64_t dim = 16;
      Random random(static_cast<uint32_t>(pool));
      OpRunner runner(isa);
      IndexData d(random, n, dim, pool, 2);
      std::vector<std::byte> whole;
      for (const int64_t chunk : {n, int64_t{1}, int64_t{3}, int64_t{7}, int64_t{64}}) {
        Caches c(n, dim, pool, 8, DType::kF32);
        for (int64_t first = 0; first < n; first += chunk) write_keys(runner, c, d, n, first, std::min(chunk, n - first));
        if (chunk == n) whole = c.pages;
        EXPECT_EQ(c.pages, whole) << "chunk " << chunk << ", pool " << pool;
        std::vector<float> got;
        std::vector<double> expected;
        for (int64_t p = 0; p < n / pool; ++p) {
          got.insert(got.end(), c.pooled(p), c.pooled(p) + dim);
          std::vector<std::vector<double>> normed;
          for (int64_t s = 0; s < pool; ++s) {
            const float* x = &d.key[static_cast<size_t>((p * pool + s) * dim)];
            double mean = 0;
            double variance = 0;
            for (int64_t i = 0; i < dim; ++i) mean += x[i] / static_cast<double>(dim);
            for (int64_t i = 0; i < dim; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(dim);
            std::vector<double> y;
            for (int64_t i = 0; i < dim; ++i)
              y.push_back((x[i] - mean) / std::sqrt(variance + 1e-6) * d.weight[static_cast<size_t>(i)] + d.bias[static_cast<size_t>(i)]);
            normed.push_back(y);
          }
          for (int64_t i = 0; i < dim; ++i) {
            double norm = 0;
            double value = 0;
            for (int64_t s = 0; s < pool; ++s) {
              const double e =
                  std::exp(double{d.gamma[static_cast<size_t>((p * pool + s) * dim + i)]} + d.ape[static_cast<size_t>(s * dim + i)]);
              norm += e;
              value += e * normed[static_cast<size_t>(s)][static_cast<size_t>(i)];
            }
            expected.push_back(value / norm);
          }
        }
        EXPECT_LT(relative_error(got, expected), 1e-5) << "chunk " << chunk;
      }
    }
  }
}

TEST(Indexer, SelectsExactlyTheBestPoolsAndTheTail) {
  for (const Isa isa : machine_isas()) {
    const int64_t n = 200;
    const int64_t dim = 16;
    const int64_t heads = 3;
    const int32_t pool = 4;
    Random random(9);
    OpRunner runner(isa);
    IndexData d(random, n, dim, pool, heads);
    Caches c(n, dim, pool, 8, DType::kF32);
    write_keys(runner, c, d, n, 0, n);
    Chosen chosen(n, 10);
    ops::IndexerSelectParams p;
    p.batch = c.batch(0, n);
    p.q = view(d.q, n);
    p.weights = view(d.head_weights, n);
    p.heads = heads;
    p.pages = c.page_pool();
    p.layout = c.index;
    p.selection = chosen.selection;
    runner.run(runner.ops().indexer_select, p);
    for (int64_t t = 0; t < n; ++t) {
      const int64_t closed = (t + 1) / pool;
      EXPECT_EQ(chosen.tails[static_cast<size_t>(t)], closed * pool);
      std::vector<std::pair<double, int32_t>> scores;
      for (int64_t i = 0; i < closed; ++i) {
        double score = 0;
        for (int64_t h = 0; h < heads; ++h) {
          double z = 0;
          for (int64_t x = 0; x < dim; ++x) z += double{d.q[static_cast<size_t>((t * heads + h) * dim + x)]} * c.pooled(i)[x];
          score += d.head_weights[static_cast<size_t>(t * heads + h)] * std::max(z, 0.0);
        }
        scores.emplace_back(-score, static_cast<int32_t>(i));
      }
      std::sort(scores.begin(), scores.end());
      scores.resize(std::min<size_t>(scores.size(), 10));
      std::vector<int32_t> expected;
      for (const auto& [score, i] : scores) expected.push_back(i);
      std::sort(expected.begin(), expected.end());
      const int32_t* first = &chosen.pools[static_cast<size_t>(t * 10)];
      EXPECT_EQ(std::vector<int32_t>(first, first + chosen.counts[static_cast<size_t>(t)]), expected) << "position " << t;
    }
  }
}

TEST(Indexer, TiesFallToTheLowerPool) {
  const int64_t n = 64;
  Random random(2);
  OpRunner runner(detect_isa());
  IndexData d(random, n, 8, 4, 1);
  std::fill(d.head_weights.begin(), d.head_weights.end(), 0.0F);  // every score is 0
  Caches c(n, 8, 4, 8, DType::kF32);
  write_keys(runner, c, d, n, 0, n);
  Chosen chosen(n, 3);
  ops::IndexerSelectParams p{c.batch(0, n), view(d.q, n), view(d.head_weights, n), 1, c.page_pool(), c.index, chosen.selection};
  runner.run(runner.ops().indexer_select, p);
  EXPECT_EQ(std::vector<int32_t>(chosen.pools.end() - 3, chosen.pools.end()), (std::vector<int32_t>{0, 1, 2}));
}

// FP8 rows hold the value to the format's precision; BF16 likewise.
TEST(Latent, RowsRoundTripThroughEveryStorageType) {
  for (const auto& [type, bound] : {std::pair<DType, double>{DType::kF32, 1e-6}, {DType::kBF16, 0.004}, {DType::kF8E4M3, 0.0625}}) {
    const int64_t n = 100;
    const int64_t dim = 160;
    Random random(3);
    OpRunner runner(detect_isa());
    std::vector<float> x = random.normal(n * dim);
    const std::vector<float> w = random.normal(dim);
    Caches c(n, 8, 4, dim, type);
    runner.run(runner.ops().latent_write, ops::LatentWriteParams{c.batch(0, n), view(x, n), w.data(), 1e-5F, c.page_pool(), c.latent});
    // Attending to one token alone returns its row.
    Chosen chosen(n, 1);
    for (int64_t t = 0; t < n; ++t) chosen.tails[static_cast<size_t>(t)] = static_cast<int32_t>(t);
    std::vector<float> q = random.normal(n * dim);
    std::vector<float> out(static_cast<size_t>(n * dim));
    runner.run(runner.ops().mla_attend,
               ops::MlaAttendParams{c.batch(0, n), view(q, n), 1, 0.1F, c.page_pool(), c.latent, chosen.selection, 4, view(out, n)});
    for (int64_t t = 0; t < n; ++t) {
      double square = 0;
      for (int64_t i = 0; i < dim; ++i)
        square += double{x[static_cast<size_t>(t * dim + i)]} * x[static_cast<size_t>(t * dim + i)] / static_cast<double>(dim);
      for (int64_t i = 0; i < dim; ++i) {
        const double expected = x[static_cast<size_t>(t * dim + i)] / std::sqrt(square + 1e-5) * w[static_cast<size_t>(i)];
        EXPECT_NEAR(out[static_cast<size_t>(t * dim + i)], expected, bound * std::fabs(expected) + bound * 0.1) << dtype_name(type);
      }
    }
  }
}

TEST(MlaAttend, MatchesDoubleOverPoolsAndTail) {
  for (const Isa isa : machine_isas()) {
    for (const int64_t heads : {1, 4, 6}) {
      const int64_t n = 150;
      const int64_t dim = 24;
      const int32_t pool = 4;
      Random random(static_cast<uint32_t>(heads));
      OpRunner runner(isa);
      std::vector<float> x = random.normal(n * dim);
      const std::vector<float> w(static_cast<size_t>(dim), 1.0F);
      Caches c(n, 8, pool, dim, DType::kF32);
      runner.run(runner.ops().latent_write, ops::LatentWriteParams{c.batch(0, n), view(x, n), w.data(), 1e-5F, c.page_pool(), c.latent});
      Chosen chosen(n, 12);
      std::vector<float> q = random.normal(n * heads * dim);
      for (int64_t t = 0; t < n; ++t) {
        const auto closed = static_cast<int32_t>((t + 1) / pool);
        chosen.tails[static_cast<size_t>(t)] = closed * pool;
        for (int32_t i = 0; i < closed && chosen.counts[static_cast<size_t>(t)] < 12; i += 2)
          chosen.pools[static_cast<size_t>(t * 12 + chosen.counts[static_cast<size_t>(t)]++)] = i;
      }
      std::vector<float> out(q.size());
      runner.run(runner.ops().mla_attend, ops::MlaAttendParams{c.batch(0, n), view(q, n), heads, 0.2F, c.page_pool(), c.latent,
                                                               chosen.selection, pool, view(out, n)});
      std::vector<double> expected;
      for (int64_t t = 0; t < n; ++t) {
        std::vector<int64_t> tokens;
        for (int32_t i = 0; i < chosen.counts[static_cast<size_t>(t)]; ++i)
          for (int64_t s = 0; s < pool; ++s) tokens.push_back(chosen.pools[static_cast<size_t>(t * 12 + i)] * pool + s);
        for (int64_t s = chosen.tails[static_cast<size_t>(t)]; s <= t; ++s) tokens.push_back(s);
        for (int64_t h = 0; h < heads; ++h) {
          std::vector<double> o(static_cast<size_t>(dim));
          double norm = 0;
          for (const int64_t s : tokens) {
            double square = 0;
            for (int64_t i = 0; i < dim; ++i)
              square += double{x[static_cast<size_t>(s * dim + i)]} * x[static_cast<size_t>(s * dim + i)] / static_cast<double>(dim);
            const double inverse = 1 / std::sqrt(square + 1e-5);
            double z = 0;
            for (int64_t i = 0; i < dim; ++i)
              z += double{q[static_cast<size_t>((t * heads + h) * dim + i)]} * x[static_cast<size_t>(s * dim + i)] * inverse;
            const double e = std::exp(0.2 * z);
            norm += e;
            for (int64_t i = 0; i < dim; ++i) o[static_cast<size_t>(i)] += e * x[static_cast<size_t>(s * dim + i)] * inverse;
          }
          for (const double v : o) expected.push_back(v / norm);
        }
      }
      EXPECT_LT(relative_error(out, expected), 1e-5) << isa_name(isa) << " " << heads << " heads";
    }
  }
}

}  // namespace
}  // namespace baton::cpu::testing
