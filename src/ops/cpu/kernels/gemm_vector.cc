// Matrix products in vector registers: AVX2 and AVX-512.
//
// A strip is worked off group by group (128 k's), so that the group's part of the weight (32 KB of floats at most) stays in the first cache
// for all rows. A few rows alone would wait for the latency of their additions: for them several groups run at once, each in its own sum.
#include "ops/cpu/kernels/expand_e4m3.h"
#include "ops/cpu/kernels/gemm_kernels.h"
#include "ops/cpu/kernels/gemm_rows.h"
#include "ops/cpu/kernels/gemm_strips.h"
#include "ops/cpu/kernels/vec16.h"
#include "ops/cpu/packed_layout.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {
namespace {

constexpr bool kWide = BATON_VECTOR_FLOATS == 16;
// Register tile: kRowTile rows x kBlockTile blocks of sums, or twice the rows of half the blocks; sums in flight for one row.
constexpr int kRowTile = 4;
constexpr int kBlockTile = kWide ? 4 : 1;
constexpr int kSums = kWide ? 8 : 4;

// One step is a k of kF32 weights, else a pair of k's.
enum class Mode { kFloat, kFloatPairs, kDotPairs };

// Where the weight of the current groups lies: group g of block b at data + b * block_stride + g * group_stride.
struct WeightGroups {
  const std::byte* data;
  int64_t block_stride;
  int64_t group_stride;
};

template <Mode kMode>
BATON_INLINE Vec16 step(const std::byte* x, const std::byte* w, int64_t i, Vec16 sum) {
  if constexpr (kMode == Mode::kFloat) {
    return fma(broadcast16(reinterpret_cast<const float*>(x)[i]), load16(reinterpret_cast<const float*>(w) + i * 16), sum);
  } else if constexpr (kMode == Mode::kFloatPairs) {
    Vec16 even;
    Vec16 odd;
    load_pair(reinterpret_cast<const uint16_t*>(w) + i * 32, even, odd);
    const auto* xf = reinterpret_cast<const float*>(x) + 2 * i;
    return fma(broadcast16(xf[1]), odd, fma(broadcast16(xf[0]), even, sum));
  } else {
#if BATON_VECTOR_FLOATS == 16
    int pair;
    std::memcpy(&pair, x + 4 * i, 4);
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(_mm512_loadu_si512(w + i * 64)),
                             reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)))};
#else
    return sum;
#endif
  }
}

// Adds partial sums of group g to y.
BATON_INLINE void add_group(const Strip& s, int64_t r, int64_t b, int64_t g, Vec16 p) {
  float* y = s.y + r * s.y_stride + b * 16;
  if (s.w_dtype == DType::kF8E4M3) {
    if (s.x_scale != nullptr) {
      const Vec16 row_scale = broadcast16(s.x_scale[r * s.x_scale_stride + g]);
#if BATON_VECTOR_FLOATS == 16
      p.v = _mm512_mul_ps(p.v, row_scale.v);
#else
      p = {_mm256_mul_ps(p.lo, row_scale.lo), _mm256_mul_ps(p.hi, row_scale.hi)};
#endif
    }
    store16(y, fma(p, broadcast16(s.w_scale[g]), g == 0 ? zero16() : load16(y)));
  } else {
    store16(y, g == 0 ? p : add(load16(y), p));
  }
}

// Rows r ... r + kRows - 1, blocks b ... b + kBlocks - 1, groups g ... g + kGroups - 1, each group `depth` k's deep.
template <Mode kMode, int kRows, int kBlocks, int kGroups>
void tile(const Strip& s, const WeightGroups& w, int64_t r, int64_t b, int64_t g, int64_t depth) {
  constexpr int64_t kElement = kMode == Mode::kDotPairs ? 2 : 4;
  const std::byte* x = static_cast<const std::byte*>(s.x) + r * s.x_stride + g * kGroupDepth * kElement;
  const std::byte* weight = w.data + b * w.block_stride;
  Vec16 sum[kGroups][kRows][kBlocks];
  for (auto& group : sum)
    for (auto& row : group)
      for (Vec16& v : row) v = zero16();
  const int64_t steps = kMode == Mode::kFloat ? depth : depth / 2;
  for (int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kGroups; ++j)
#pragma GCC unroll 8
      for (int a = 0; a < kRows; ++a)
#pragma GCC unroll 8
        for (int c = 0; c < kBlocks; ++c)
          sum[j][a][c] = step<kMode>(x + a * s.x_stride + j * kGroupDepth * kElement, weight + c * w.block_stride + j * w.group_stride, i,
                                     sum[j][a][c]);
  if (kMode == Mode::kFloatPairs && depth % 2 != 0) {  // only the last group; the missing element of x must not be read
    for (int a = 0; a < kRows; ++a) {
      float last;
      std::memcpy(&last, x + a * s.x_stride + (depth - 1) * 4, 4);
      for (int c = 0; c < kBlocks; ++c) {
        Vec16 even;
        Vec16 odd;
        load_pair(reinterpret_cast<const uint16_t*>(weight + c * w.block_stride) + steps * 32, even, odd);
        sum[0][a][c] = fma(broadcast16(last), even, sum[0][a][c]);
      }
    }
  }
  for (int j = 0; j < kGroups; ++j)
    for (int a = 0; a < kRows; ++a)
      for (int c = 0; c < kBlocks; ++c) add_group(s, r + a, b + c, g + j, sum[j][a][c]);
}

template <Mode kMode, int kRows, int kGroups>
void row_tiles(const Strip& s, const WeightGroups& w, int64_t r, int64_t g, int64_t depth) {
  if constexpr (kBlockTile == 1) {
    for (int64_t b = 0; b < s.blocks; ++b) tile<kMode, kRows, 1, kGroups>(s, w, r, b, g, depth);
  } else {
    if constexpr (kRows * kGroups <= kSums / 2) {
      if (s.blocks == 4) return tile<kMode, kRows, 4, kGroups>(s, w, r, 0, g, depth);
      if (s.blocks == 3) return tile<kMode, kRows, 3, kGroups>(s, w, r, 0, g, depth);
    }
    if (s.blocks == 2) return tile<kMode, kRows, 2, kGroups>(s, w, r, 0, g, depth);
    if (s.blocks == 1) return tile<kMode, kRows, 1, kGroups>(s, w, r, 0, g, depth);
  }
}

// All rows over `groups` groups; more than one only when each is full.
template <Mode kMode, int kGroups>
void all_rows(const Strip& s, const WeightGroups& w, int64_t g, int64_t depth) {
  int64_t r = 0;
  if constexpr (kGroups == 1 && kWide)
    for (; s.blocks <= kBlockTile / 2 && r + 2 * kRowTile <= s.m; r += 2 * kRowTile) row_tiles<kMode, 2 * kRowTile, 1>(s, w, r, g, depth);
  if constexpr (kGroups == 1)
    for (; r + kRowTile <= s.m; r += kRowTile) row_tiles<kMode, kRowTile, 1>(s, w, r, g, depth);
  for (; r < s.m; ++r) row_tiles<kMode, 1, kGroups>(s, w, r, g, depth);
}

// kBf16 and expanded kF8E4M3 groups are kGroupDepth / 2 lines of 64 bytes, kF32 groups twice as many.
WeightGroups weight_groups(const Strip& s, int64_t g, int64_t groups, int64_t depth) {
  const auto* data = static_cast<const std::byte*>(s.w);
  const int64_t block = block_bytes(s.w_dtype, s.k);
  if (s.w_dtype == DType::kF32) return {data + g * kGroupDepth * 64, block, kGroupDepth * 64};
  if (s.w_dtype == DType::kBF16) return {data + g * kGroupDepth * 32, block, kGroupDepth * 32};
  auto* expanded = static_cast<std::byte*>(s.scratch);
  const int64_t elements = groups * padded_depth(s.w_dtype, depth) * 16;
  for (int64_t b = 0; b < s.blocks; ++b)
    expand_e4m3(reinterpret_cast<const uint8_t*>(data + b * block + g * kGroupDepth * 16),
                reinterpret_cast<uint16_t*>(expanded + b * elements * 2), elements / 64);
  return {expanded, elements * 2, kGroupDepth * 32};
}

template <Mode kMode, int kGroups>
int64_t full_groups(const Strip& s, int64_t g) {
  for (; (g + kGroups) * kGroupDepth <= s.k; g += kGroups)
    all_rows<kMode, kGroups>(s, weight_groups(s, g, kGroups, kGroupDepth), g, kGroupDepth);
  return g;
}

template <Mode kMode>
void strip(const Strip& s) {
  int64_t g = 0;
  if (s.m < kRowTile) {
    // kSums sums together; for kF8E4M3 as many expanded groups fit into the scratch.
    if (kBlockTile == 1 || s.blocks == 1)
      g = full_groups<kMode, kSums>(s, g);
    else if (s.blocks == 2)
      g = full_groups<kMode, kSums / 2>(s, g);
    else
      g = full_groups<kMode, kSums / 4>(s, g);
  }
  g = full_groups<kMode, 1>(s, g);
  const int64_t depth = s.k - g * kGroupDepth;
  if (depth > 0) all_rows<kMode, 1>(s, weight_groups(s, g, 1, depth), g, depth);
}

}  // namespace

void float_strip(const Strip& s) {
  if (s.w_dtype == DType::kF32)
    strip<Mode::kFloat>(s);
  else
    strip<Mode::kFloatPairs>(s);
}

#if BATON_VECTOR_FLOATS == 16
void bf16_strip(const Strip& s) {
  Strip padded = s;
  padded.k = padded_depth(DType::kBF16, s.k);  // x and w hold zeros there
  strip<Mode::kDotPairs>(padded);
}
#endif

extern const GemmKernels kGemmKernels;
const GemmKernels kGemmKernels = {
    .float_strip = float_strip,
#if BATON_VECTOR_FLOATS == 16
    .bf16_strip = bf16_strip,
#else
    .bf16_strip = nullptr,
#endif
    .quantise_row = quantise_row,
    .store = store_rows,
    .swiglu = swiglu_rows,
    .weighted_sum = weighted_sum,
};

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
