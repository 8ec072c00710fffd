// The kernels of the matrix products, once per instruction set.
//
// Arithmetic, the same for every m, row, thread count and blocking. Columns of x and rows of W's blocks are cut into groups of 128 along k.
//   float_strip: x in float. p_g = sum over the group's k in ascending order, each step one fused multiply-add from 0.
//   bf16_strip:  x in bf16. avx512: p_g by VDPBF16PS over ascending pairs. amx: by TDPBF16PS over ascending tiles of 32; kBF16 weights
//                are one group of all k.
//   y = p_0 + p_1 + ... in order; with kF8E4M3 weights each step is fma(p_g, scale, y) from 0, or fma(p_g * row_scale, scale, y) for
//   quantised rows.
// float_strip gives the same bits at every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/isa.h"
#include "tensor/number.h"

namespace baton::cpu {

inline constexpr int64_t kGroupDepth = 128;  // k's per group, and per scale of FP8
inline constexpr int64_t kStripBlocks = 4;   // blocks of 16 columns per strip: 64 columns, which share a row of scales
inline constexpr int64_t kStripColumns = 64;
inline constexpr int64_t kStripScratch = 64 * 1024;

// y[m, 16 blocks] = x[m, k] times consecutive blocks of a packed weight.
struct Strip {
  const void* x = nullptr;         // float_strip: floats; bf16_strip: bf16, zero-padded to a multiple of 32 columns
  int64_t x_stride = 0;            // bytes
  const float* x_scale = nullptr;  // quantised rows: [m, x_scale_stride], one per group
  int64_t x_scale_stride = 0;
  int64_t m = 0;
  int64_t k = 0;
  const void* w = nullptr;       // first block
  const void* next_w = nullptr;  // what the caller will likely read next; any address, only prefetched
  DType w_dtype = DType::kF32;
  const float* w_scale = nullptr;  // kF8E4M3: one per group
  int64_t blocks = 0;              // 1 ... kStripBlocks
  float* y = nullptr;
  int64_t y_stride = 0;     // floats
  void* scratch = nullptr;  // kStripScratch bytes, aligned to 64
};

struct GemmKernels {
  void (*float_strip)(const Strip& s);
  void (*bf16_strip)(const Strip& s);  // null where bf16 rows are widened to float first

  // One row to e4m3 per group of 128: values of e4m3 as dst_dtype (kF32 or kBF16), scale = amax / 448 (1 if all are zero).
  void (*quantise_row)(const float* x, int64_t k, void* dst, DType dst_dtype, float* scale);

  // dst[m, n] = src[m, n], rounded to nearest even. Strides: floats, bytes.
  void (*store)(const float* src, int64_t src_stride, int64_t m, int64_t n, void* dst, int64_t dst_stride, DType dst_dtype);
  // gate[m, n] <- silu(min(gate, limit)) * clamp(up, +-limit); n is a multiple of 16
  void (*swiglu)(float* gate, const float* up, int64_t stride, int64_t m, int64_t n, float limit);
  // out[n] = base[n] (or 0) + sum_j weight[j] rows[j][n] in order of j, each step fused
  void (*weighted_sum)(const void* base, DType base_dtype, const void* const* rows, DType dtype, const float* weight, int64_t count,
                       int64_t n, void* out, DType out_dtype);
};

const GemmKernels& gemm_kernels(Isa isa);

}  // namespace baton::cpu
