// Cases of the indexer's choice on the device: scores against double, the choice exactly against the device's own scores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/indexer/launch.h"
#include "ops/cuda/indexer/params.h"
#include "tests/gpu/gpu_support.cuh"

namespace baton::gpu_test {

namespace indexer = cuda::indexer;
using bf16 = __nv_bfloat16;

struct IndexerCase {
  std::string name;
  std::vector<std::pair<int32_t, int32_t>> sequences;  // position of the first row, rows
  int32_t capacity = 512;
  int32_t splits = 0;             // 0: as configured
  std::string values = "normal";  // normal, equal (all keys alike: ties), nan (weights)
  uint64_t seed = 1;
};

inline float code_value(uint8_t code) {
  __nv_fp8_e4m3 v;
  v.__x = code;
  return static_cast<float>(v);
}

struct IndexerData {
  static constexpr int64_t kPageBytes = 16 * 128 + 64;
  int64_t page_offset = 528;
  int64_t page_stride = 3072;
  int32_t table_stride = 0;
  std::vector<std::byte> pages;
  std::vector<int32_t> row_sequence, positions, tables;
  std::vector<bf16> q;
  std::vector<float> weights;

  explicit IndexerData(const IndexerCase& c) {
    int32_t last = 0;
    for (const auto& [position, count] : c.sequences) last = std::max(last, position + count);
    table_stride = last / 64 + 1;
    const auto sequences = static_cast<int32_t>(c.sequences.size());
    tables.resize(static_cast<size_t>(sequences * table_stride));
    std::iota(tables.rbegin(), tables.rend(), 0);
    pages.assign(tables.size() * static_cast<size_t>(page_stride), std::byte{0xFF});
    parallel_for(static_cast<int64_t>(tables.size()), [&](int64_t page) {
      std::byte* to = pages.data() + page * page_stride + page_offset;
      for (int64_t k = 0; k < 16; ++k) {
        const auto base = c.values == "equal" ? 77 : c.seed * 31 + static_cast<uint64_t>(page * 16 + k) * 4096;
        for (uint64_t i = 0; i < 128; ++i) to[k * 128 + static_cast<int64_t>(i)] = std::byte{random_code(base + i)};
        const float scale = std::ldexp(1.0F, -9 + static_cast<int>(mix(base + 300) % 3));
        std::memcpy(to + 16 * 128 + k * 4, &scale, 4);
      }
    });
    for (int32_t s = 0; s < sequences; ++s)
      for (int32_t i = 0; i < c.sequences[static_cast<size_t>(s)].second; ++i) {
        row_sequence.push_back(s);
        positions.push_back(c.sequences[static_cast<size_t>(s)].first + i);
        const uint64_t row = c.seed * 1013 + static_cast<uint64_t>(c.sequences[static_cast<size_t>(s)].first + i) * 977;
        for (uint64_t k = 0; k < 32 * 128; ++k) q.push_back(__float2bfloat16(normal((row << 20) + k)));
        for (uint64_t k = 0; k < 32; ++k) weights.push_back(c.values == "nan" && k == 5 ? NAN : normal((row << 20) + 9999 + k));
      }
  }
  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  const std::byte* page(int64_t sequence, int64_t pool) const {
    return pages.data() + tables[static_cast<size_t>(sequence * table_stride + pool / 16)] * page_stride + page_offset;
  }
};

struct IndexerResult {
  std::vector<float> scores;
  std::vector<int32_t> pools, counts, tails;
  int64_t stride = 0;
};

inline IndexerResult run_indexer(const IndexerCase& c, const IndexerData& d) {
  const int64_t m = d.rows();
  const DeviceArray<std::byte> pages(d.pages);
  const DeviceArray<int32_t> row_sequence(d.row_sequence), positions(d.positions), tables(d.tables);
  const DeviceArray<bf16> q(d.q);
  const DeviceArray<float> weights(d.weights);
  DeviceArray<int32_t> pools(m * c.capacity), counts(m), tails(m);
  ops::IndexerSelectParams p;
  p.batch.row_count = static_cast<int32_t>(m);
  p.batch.sequence_count = static_cast<int32_t>(c.sequences.size());
  p.batch.row_sequence = row_sequence.get();
  p.batch.positions = positions.get();
  p.batch.page_tables = tables.get();
  p.batch.page_table_stride = d.table_stride;
  p.q = {q.get(), DType::kBF16, m, 32 * 128, 32 * 128};
  p.weights = {weights.get(), DType::kF32, m, 32, 32};
  p.heads = 32;
  p.pages = {pages.get(), d.page_stride};
  p.layout.dim = 128;
  p.layout.pool = 4;
  p.layout.page_offset = d.page_offset;
  p.layout.dtype = DType::kF8E4M3;
  p.selection = {pools.get(), counts.get(), tails.get(), c.capacity};
  auto config = indexer::configure(p, cuda::multiprocessors());
  if (c.splits > 0) config.splits = c.splits;
  if (!indexer::supported(p)) std::printf("not supported: ");
  DeviceArray<std::byte> workspace(config.workspace_bytes);
  workspace.fill_bytes(0xFF);
  pools.fill_bytes(0xFF);
  counts.fill_bytes(0xFF);
  tails.fill_bytes(0xFF);
  CUDA_OK(indexer::select(p, config, workspace.get(), true, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
  IndexerResult r{{}, pools.host(), counts.host(), tails.host(), config.score_stride};
  r.scores.resize(static_cast<size_t>(m * config.score_stride));
  CUDA_OK(cudaMemcpy(r.scores.data(), workspace.get(), r.scores.size() * 4, cudaMemcpyDeviceToHost));
  return r;
}

// The 32 queries of a row as the op rounds them: codes times scale.
inline std::vector<double> rounded_queries(const IndexerData& d, int64_t r) {
  std::vector<double> out(32 * 128);
  for (int64_t h = 0; h < 32; ++h) {
    float x[128];
    for (int64_t i = 0; i < 128; ++i) x[i] = __bfloat162float(d.q[static_cast<size_t>((r * 32 + h) * 128 + i)]);
    for (int half = 1; half < 128; half *= 2)
      for (int i = 0; i < 128; i += 2 * half)
        for (int j = i; j < i + half; ++j) {
          const float a = x[j];
          const float b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
    float largest = 0;
    for (auto& v : x) largest = std::max(largest, std::fabs(v *= 1.0F / std::sqrt(128.0F)));
    const float scale = std::exp2(std::ceil(std::log2(std::max(largest, 1e-4F) / 448.0F)));
    for (int64_t i = 0; i < 128; ++i)
      out[static_cast<size_t>(h * 128 + i)] =
          static_cast<double>(static_cast<float>(__nv_fp8_e4m3(x[i] / scale))) * static_cast<double>(scale);
  }
  return out;
}

inline bool check_indexer(const IndexerCase& c, int64_t rows_scored) {
  const IndexerData d(c);
  const IndexerResult got = run_indexer(c, d);
  std::string failures;
  const auto expect = [&](bool ok, const char* what) {
    if (!ok && failures.find(what) == std::string::npos) failures += std::string(" ") + what + ";";
  };
  const auto closed_of = [&](int64_t r) { return int64_t{(d.positions[static_cast<size_t>(r)] + 1) / 4}; };
  const auto same_row = [&](const IndexerResult& a, int64_t i, const IndexerResult& b, int64_t j, int64_t closed) {
    return a.counts[static_cast<size_t>(i)] == b.counts[static_cast<size_t>(j)] &&
           a.tails[static_cast<size_t>(i)] == b.tails[static_cast<size_t>(j)] &&
           std::memcmp(&a.pools[static_cast<size_t>(i * c.capacity)], &b.pools[static_cast<size_t>(j * c.capacity)],
                       static_cast<size_t>(c.capacity) * 4) == 0 &&
           (closed <= c.capacity || std::memcmp(&a.scores[static_cast<size_t>(i * a.stride)], &b.scores[static_cast<size_t>(j * b.stride)],
                                                static_cast<size_t>(closed) * 4) == 0);
  };
  const IndexerResult again = run_indexer(c, d);
  for (int64_t r = 0; r < d.rows(); ++r) expect(same_row(got, r, again, r, closed_of(r)), "second run differs");
  // The sequences in reverse order, with the keys split otherwise. Pages move with their sequences.
  IndexerCase turned = c;
  IndexerData t = d;
  std::reverse(turned.sequences.begin(), turned.sequences.end());
  turned.splits = 3;
  const auto sequences = static_cast<int64_t>(c.sequences.size());
  std::vector<int64_t> from;
  t.row_sequence.clear();
  t.positions.clear();
  t.q.clear();
  t.weights.clear();
  for (int64_t s = 0; s < sequences; ++s) {
    std::copy_n(d.tables.begin() + (sequences - 1 - s) * d.table_stride, d.table_stride, t.tables.begin() + s * d.table_stride);
    for (int64_t r = 0; r < d.rows(); ++r) {
      if (d.row_sequence[static_cast<size_t>(r)] != sequences - 1 - s) continue;
      from.push_back(r);
      t.row_sequence.push_back(static_cast<int32_t>(s));
      t.positions.push_back(d.positions[static_cast<size_t>(r)]);
      t.q.insert(t.q.end(), d.q.begin() + r * 32 * 128, d.q.begin() + (r + 1) * 32 * 128);
      t.weights.insert(t.weights.end(), d.weights.begin() + r * 32, d.weights.begin() + (r + 1) * 32);
    }
  }
  const IndexerResult other = run_indexer(turned, t);
  for (size_t i = 0; i < from.size(); ++i)
    expect(same_row(got, from[i], other, static_cast<int64_t>(i), closed_of(from[i])), "another batch differs");

  double worst = 0, agreed = 0, chosen_total = 0;
  std::mutex mutex;
  const int64_t step = std::max<int64_t>(1, d.rows() / std::max<int64_t>(rows_scored, 1));
  parallel_for(d.rows(), [&](int64_t r) {
    const int64_t closed = closed_of(r);
    const int64_t count = std::min<int64_t>(closed, c.capacity);
    std::vector<int32_t> order(static_cast<size_t>(closed));
    std::iota(order.begin(), order.end(), 0);
    const auto choose = [&](auto score) {
      auto best = order;
      std::nth_element(best.begin(), best.begin() + count, best.end(),
                       [&](int32_t a, int32_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; });
      best.resize(static_cast<size_t>(count));
      std::sort(best.begin(), best.end());
      return best;
    };
    const int32_t* pools = &got.pools[static_cast<size_t>(r * c.capacity)];
    const float* scores = &got.scores[static_cast<size_t>(r * got.stride)];
    bool ok = got.counts[static_cast<size_t>(r)] == count && got.tails[static_cast<size_t>(r)] == closed * 4;
    const auto want = closed <= c.capacity ? order : choose([&](int32_t i) { return std::isnan(scores[i]) ? -INFINITY : scores[i]; });
    ok = ok && std::memcmp(want.data(), pools, want.size() * 4) == 0;
    double row_worst = 0;
    double row_agreed = 0;
    if (closed > c.capacity && r % step == 0 && c.values == "normal") {
      const auto q = rounded_queries(d, r);
      std::vector<double> exact(static_cast<size_t>(closed));
      for (int64_t k = 0; k < closed; ++k) {
        const std::byte* page = d.page(d.row_sequence[static_cast<size_t>(r)], k);
        float scale = 0;
        std::memcpy(&scale, page + 16 * 128 + k % 16 * 4, 4);
        double sum = 0, size = 0;
        for (int64_t h = 0; h < 32; ++h) {
          double dot = 0, terms = 0;
          for (int64_t i = 0; i < 128; ++i) {
            const double x =
                q[static_cast<size_t>(h * 128 + i)] * static_cast<double>(code_value(std::to_integer<uint8_t>(page[k % 16 * 128 + i])));
            dot += x;
            terms += std::fabs(x);
          }
          const double w = static_cast<double>(d.weights[static_cast<size_t>(r * 32 + h)]) / 64 * static_cast<double>(scale);
          sum += w * std::max(dot, 0.0);
          size += std::fabs(w) * terms;
        }
        exact[static_cast<size_t>(k)] = sum;
        row_worst = std::max(row_worst, std::fabs(static_cast<double>(scores[k]) - sum) / size);
      }
      const auto best = choose([&](int32_t i) { return exact[static_cast<size_t>(i)]; });
      std::vector<int32_t> both;
      std::set_intersection(best.begin(), best.end(), pools, pools + count, std::back_inserter(both));
      row_agreed = static_cast<double>(both.size());
    }
    const std::lock_guard lock(mutex);
    expect(ok, "choice");
    worst = std::max(worst, row_worst);
    agreed += row_agreed;
    if (row_agreed > 0) chosen_total += static_cast<double>(count);
  });
  const double share = chosen_total > 0 ? agreed / chosen_total : 1;
  expect(worst < 1.0 / 4096, "scores");
  expect(share > 0.98, "agreement with double");
  std::printf("%-30s %s  error over terms %.1e  pools as in double %.4f %s\n", c.name.c_str(), failures.empty() ? "ok  " : "FAIL", worst,
              share, failures.c_str());
  std::fflush(stdout);
  return failures.empty();
}

// Cases that failed.
inline int check_indexer_all(bool small) {
  int failed = 0;
  uint64_t seed = 1;
  const auto run = [&](IndexerCase c, int64_t rows_scored = 8) {
    c.seed = seed++;
    failed += check_indexer(c, rows_scored) ? 0 : 1;
  };
  run({.name = "one row", .sequences = {{3000, 1}}});
  run({.name = "small choice, ragged", .sequences = {{700, 8}, {130, 3}, {61, 8}}, .capacity = 16});
  if (!small) {
    run({.name = "no rows", .sequences = {}});
    run({.name = "everything is chosen", .sequences = {{0, 8}, {2040, 8}}});
    run({.name = "around the capacity", .sequences = {{2043, 12}}});
    run({.name = "rows of many sequences", .sequences = {{2500, 1}, {9000, 2}, {100, 1}, {5000, 3}, {4000, 1}, {7777, 8}}});
    run({.name = "verify, 16K", .sequences = {{16376, 8}, {16000, 8}, {15000, 8}}});
    run({.name = "64K", .sequences = {{65528, 8}}}, 4);
    run({.name = "100K", .sequences = {{100000, 3}}}, 1);
    run({.name = "160K: scores read again", .sequences = {{160000, 2}}}, 1);
    run({.name = "prompt", .sequences = {{4000, 150}}});
    run({.name = "one pool", .sequences = {{700, 8}}, .capacity = 1});
    run({.name = "capacity 1,024", .sequences = {{9000, 8}}, .capacity = 1024});
    run({.name = "all keys alike", .sequences = {{9000, 8}}, .values = "equal"});
    run({.name = "weights not a number", .sequences = {{9000, 8}}, .values = "nan"});
  }
  return failed;
}

}  // namespace baton::gpu_test
