// Cases of sparse attention: paged caches, selections and queries made from a seed, and the answer in double.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>
#include <string>

#include "ops/mla_sparse.h"
#include "tests/gpu/gpu_support.cuh"

namespace baton::gpu_test {

using bf16 = __nv_bfloat16;

struct MlaCase {
  std::string name;
  DType dtype = DType::kF8E4M3;
  std::vector<std::pair<int32_t, int32_t>> sequences;  // position of the first row, rows
  int32_t pool = 4;
  int32_t capacity = 512;
  int32_t heads = 64;
  float scale = 0.0625F;
  float q_size = 1;               // of the queries' elements
  std::string values = "normal";  // normal, rising (scores grow with the position), saturated, uneven (scales far apart)
  uint64_t seed = 1;
  static constexpr int64_t kDim = 512;

  int64_t rows() const {
    int64_t n = 0;
    for (const auto& s : sequences) n += s.second;
    return n;
  }
  int64_t row_bytes() const { return dtype == DType::kF8E4M3 ? kDim + 16 : kDim * 2; }
};

// Host copies of everything that the op reads.
struct MlaData {
  std::vector<std::byte> pages;
  int64_t page_stride = 0;
  int64_t page_offset = 0;
  std::vector<int32_t> row_sequence, positions, page_tables, pools, counts, tail_begin;
  int32_t table_stride = 0;
  std::vector<bf16> q;

  explicit MlaData(const MlaCase& c) {
    page_offset = 528;
    page_stride = (page_offset + 64 * c.row_bytes() + 255 + 256) / 256 * 256;
    int32_t last = 0;
    for (const auto& [position, count] : c.sequences) last = std::max(last, position + count);
    table_stride = last / 64 + 2;
    const auto sequence_count = static_cast<int32_t>(c.sequences.size());
    const int32_t page_count = table_stride * sequence_count;
    page_tables.resize(static_cast<size_t>(page_count));
    for (int32_t i = 0; i < page_count; ++i) page_tables[static_cast<size_t>(i)] = i;
    for (int32_t i = page_count - 1; i > 0; --i)
      std::swap(page_tables[static_cast<size_t>(i)],
                page_tables[static_cast<size_t>(mix(c.seed * 31 + static_cast<uint64_t>(i)) % static_cast<uint64_t>(i + 1))]);
    pages.assign(static_cast<size_t>(page_stride * page_count), std::byte{0xFF});  // NaN wherever nothing is written
    int32_t r = 0;
    for (int32_t s = 0; s < sequence_count; ++s) {
      const auto [first, count] = c.sequences[static_cast<size_t>(s)];
      for (int32_t i = 0; i < count; ++i, ++r) {
        row_sequence.push_back(s);
        positions.push_back(first + i);
        select(c, first + i, r);
      }
      parallel_for(first + count, [&, s = s](int64_t position) { write_row(c, s, position); });
    }
    q.resize(static_cast<size_t>(c.rows() * c.heads * c.kDim));
    for (size_t i = 0; i < q.size(); ++i) q[i] = __float2bfloat16(c.q_size * normal(c.seed * 7919 + i + (1ULL << 50)));
  }

  const std::byte* row(const MlaCase& c, int32_t s, int64_t position) const {
    const int32_t page = page_tables[static_cast<size_t>(s * table_stride + position / 64)];
    return pages.data() + page * page_stride + page_offset + position % 64 * c.row_bytes();
  }
  std::vector<int32_t> tokens(const MlaCase& c, int64_t r) const {
    std::vector<int32_t> t;
    for (int32_t i = 0; i < counts[static_cast<size_t>(r)]; ++i)
      for (int32_t k = 0; k < c.pool; ++k) t.push_back(pools[static_cast<size_t>(r * c.capacity + i)] * c.pool + k);
    for (int32_t k = tail_begin[static_cast<size_t>(r)]; k <= positions[static_cast<size_t>(r)]; ++k) t.push_back(k);
    return t;
  }

 private:
  // The best `capacity` of the closed pools by a random key; all of them if fewer.
  void select(const MlaCase& c, int32_t position, int32_t r) {
    const int32_t closed = (position + 1) / c.pool;
    const int32_t count = std::min(closed, c.capacity);
    std::vector<int32_t> order(static_cast<size_t>(closed));
    for (int32_t i = 0; i < closed; ++i) order[static_cast<size_t>(i)] = i;
    const auto key = [&](int32_t i) { return mix(c.seed * 101 + static_cast<uint64_t>(r) * 1000003 + static_cast<uint64_t>(i)); };
    std::nth_element(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
    order.resize(static_cast<size_t>(count));
    std::sort(order.begin(), order.end());
    order.resize(static_cast<size_t>(c.capacity), INT32_MAX);
    pools.insert(pools.end(), order.begin(), order.end());
    counts.push_back(count);
    tail_begin.push_back(closed * c.pool);
  }
  void write_row(const MlaCase& c, int32_t s, int64_t position) {
    auto* to = const_cast<std::byte*>(row(c, s, position));
    const uint64_t base = c.seed * 13 + (static_cast<uint64_t>(s) << 40) + (static_cast<uint64_t>(position) << 12);
    const float rise = c.values == "rising" ? 0.02F * static_cast<float>(position % 4096) : 1.0F;
    for (int64_t i = 0; i < c.kDim; ++i) {
      const auto u = static_cast<uint64_t>(i);
      if (c.dtype == DType::kBF16) {
        const bf16 x = __float2bfloat16(c.values == "saturated" ? ((mix(base + u) & 1) != 0 ? 3e4F : -3e4F) : rise * normal(base + u));
        std::memcpy(to + i * 2, &x, 2);
      } else {
        uint8_t code = random_code(base + u);
        if (c.values == "saturated") code = static_cast<uint8_t>(0x7E | (code & 0x80));
        to[i] = std::byte{code};
      }
    }
    if (c.dtype == DType::kBF16) return;
    for (int64_t i = 0; i < 4; ++i) {
      const auto u = static_cast<uint64_t>(i);
      float scale = std::ldexp(1.0F, -8 + static_cast<int>(mix(base + 600 + u) % 3));
      if (c.values == "uneven") scale = std::ldexp(1.0F, -22 + static_cast<int>(mix(base + 600 + u) % 24));
      if (c.values == "rising") scale = std::ldexp(1.0F, static_cast<int>(std::log2(rise + 1e-3F)) - 8);
      std::memcpy(to + c.kDim + i * 4, &scale, 4);
    }
  }
};

inline std::vector<double> latent_as_double(const MlaCase& c, const std::byte* row) {
  std::vector<double> x(static_cast<size_t>(c.kDim));
  for (int64_t i = 0; i < c.kDim; ++i) {
    if (c.dtype == DType::kBF16) {
      bf16 v;
      std::memcpy(&v, row + i * 2, 2);
      x[static_cast<size_t>(i)] = static_cast<double>(__bfloat162float(v));
    } else {
      __nv_fp8_e4m3 v;
      float scale = 0;
      std::memcpy(&v, row + i, 1);
      std::memcpy(&scale, row + c.kDim + i / 128 * 4, 4);
      x[static_cast<size_t>(i)] = static_cast<double>(static_cast<float>(v)) * static_cast<double>(scale);
    }
  }
  return x;
}

// [heads, 512] of row r.
inline std::vector<double> expected_row(const MlaCase& c, const MlaData& d, int64_t r) {
  std::vector<std::vector<double>> latents;
  for (const auto t : d.tokens(c, r)) latents.push_back(latent_as_double(c, d.row(c, d.row_sequence[static_cast<size_t>(r)], t)));
  std::vector<double> out(static_cast<size_t>(c.heads * c.kDim));
  std::vector<double> p(latents.size());
  for (int64_t h = 0; h < c.heads; ++h) {
    double top = -INFINITY;
    for (size_t t = 0; t < latents.size(); ++t) {
      double z = 0;
      for (size_t i = 0; i < static_cast<size_t>(c.kDim); ++i)
        z += static_cast<double>(__bfloat162float(d.q[static_cast<size_t>((r * c.heads + h) * c.kDim) + i])) * latents[t][i];
      p[t] = z * static_cast<double>(c.scale);
      top = std::max(top, p[t]);
    }
    double sum = 0;
    for (auto& x : p) sum += x = std::exp(x - top);
    double* o = out.data() + h * c.kDim;
    for (size_t t = 0; t < latents.size(); ++t)
      for (size_t i = 0; i < static_cast<size_t>(c.kDim); ++i) o[i] += p[t] / sum * latents[t][i];
  }
  return out;
}

}  // namespace baton::gpu_test
