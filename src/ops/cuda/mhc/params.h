// What the mHC kernels are told; plain data for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cuda::mhc {

inline constexpr int kStreams = 4;
inline constexpr int kMix = (2 + kStreams) * kStreams;  // pre, post, C
inline constexpr int kWidth = 4096;                     // d
inline constexpr int kCluster = 8;                      // blocks that share 16 rows; each takes an eighth of d, of all streams
inline constexpr int kSlice = kWidth / kCluster;
inline constexpr int kRows = 16;

struct MixParams {
  std::byte* streams;      // bf16 [rows, stream_stride], updated in place
  const std::byte* y;      // bf16 [rows, y_stride], or null: nothing to expand
  const float* from_post;  // [rows, from_post_stride]
  const float* from_comb;  // [rows, from_comb_stride]
  float* to_post;
  float* to_comb;
  const std::byte* fn;       // bf16 [24, 4 d]
  const float* base;         // [24]
  const float* scale;        // [3]
  const float* norm_weight;  // [d]
  std::byte* x;              // bf16 [rows, x_stride]
  uint8_t* codes;            // e4m3 [rows, d] of x, or null
  float* code_scales;        // [rows, d / 128]
  int64_t stream_stride;     // elements
  int64_t y_stride;
  int64_t x_stride;
  int64_t from_post_stride;
  int64_t from_comb_stride;
  int64_t to_post_stride;
  int64_t to_comb_stride;
  int32_t rows;
  int32_t sinkhorn_iterations;
  float norm_eps;
  float hc_eps;
};

}  // namespace baton::cuda::mhc
