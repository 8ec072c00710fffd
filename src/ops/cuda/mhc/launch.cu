#include "ops/cuda/mhc/launch.h"

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/mhc/mix.cuh"
#include "ops/cuda/mhc/rows.cuh"

namespace baton::cuda::mhc {

cudaError_t mix(const ops::MhcMixParams& params, const QuantisedRows& quantised, bool dependent_launch, cudaStream_t stream) {
  MixParams p{};
  p.streams = static_cast<std::byte*>(params.streams.data);
  p.y = static_cast<const std::byte*>(params.y.data);
  p.from_post = static_cast<const float*>(params.from.post.data);
  p.from_comb = static_cast<const float*>(params.from.comb.data);
  p.to_post = static_cast<float*>(params.to.post.data);
  p.to_comb = static_cast<float*>(params.to.comb.data);
  p.fn = static_cast<const std::byte*>(params.fn.data);
  p.base = params.base;
  p.scale = params.scale;
  p.norm_weight = params.norm_weight;
  p.x = static_cast<std::byte*>(params.x.data);
  p.codes = quantised.codes;
  p.code_scales = quantised.scales;
  p.stream_stride = params.streams.stride;
  p.y_stride = params.y.stride;
  p.x_stride = params.x.stride;
  p.from_post_stride = params.from.post.stride;
  p.from_comb_stride = params.from.comb.stride;
  p.to_post_stride = params.to.post.stride;
  p.to_comb_stride = params.to.comb.stride;
  p.rows = static_cast<int32_t>(params.streams.rows);
  p.sinkhorn_iterations = params.sinkhorn_iterations;
  p.norm_eps = params.norm_eps;
  p.hc_eps = params.hc_eps;
  static const cudaError_t prepared = allow_shared(mix_rows, sizeof(MixShared));
  if (prepared != cudaSuccess) return prepared;
  const auto clusters = static_cast<unsigned>((p.rows + kRows - 1) / kRows);
  return launch(mix_rows, clusters * kCluster, kMixThreads, sizeof(MixShared), kCluster, dependent_launch, stream, p);
}

cudaError_t expand(const ops::MhcExpandParams& params, bool dependent_launch, cudaStream_t stream) {
  MixParams p{};
  p.streams = static_cast<std::byte*>(params.streams.data);
  p.y = static_cast<const std::byte*>(params.y.data);
  p.from_post = static_cast<const float*>(params.from.post.data);
  p.from_comb = static_cast<const float*>(params.from.comb.data);
  p.stream_stride = params.streams.stride;
  p.y_stride = params.y.stride;
  p.from_post_stride = params.from.post.stride;
  p.from_comb_stride = params.from.comb.stride;
  return launch(expand_rows, static_cast<unsigned>(params.streams.rows), kRowThreads, 0, 1, dependent_launch, stream, p);
}

cudaError_t final(const ops::MhcFinalParams& params, bool dependent_launch, cudaStream_t stream) {
  MixParams p{};
  p.streams = const_cast<std::byte*>(static_cast<const std::byte*>(params.streams.data));  // read only
  p.norm_weight = params.norm_weight;
  p.x = static_cast<std::byte*>(params.h.data);
  p.stream_stride = params.streams.stride;
  p.x_stride = params.h.stride;
  p.norm_eps = params.norm_eps;
  return launch(final_rows, static_cast<unsigned>(params.streams.rows), kRowThreads, 0, 1, dependent_launch, stream, p);
}

}  // namespace baton::cuda::mhc
