#include "ops/cuda/moe/launch.h"

#include <algorithm>
#include <cstdint>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/moe/combine.cuh"
#include "ops/cuda/moe/expert_mlp_params.h"
#include "ops/cuda/moe/layout.h"
#include "ops/cuda/moe/pack.cuh"
#include "ops/cuda/moe/plan.cuh"
#include "ops/cuda/moe/quantise.cuh"
#include "ops/cuda/moe/route.cuh"

namespace baton::cuda::moe {

namespace {

template <class T>
T* at(const ExpertPath& path, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<uint8_t*>(path.workspace) + offset);
}

// Threads of a block that walks a row of `parts` units in one or two passes (width <= 4,096).
unsigned row_threads(int64_t parts) { return static_cast<unsigned>(parts <= 256 ? (parts + 31) / 32 * 32 : 256); }

}  // namespace

cudaError_t plan(const ExpertPath& path, cudaStream_t stream) {
  const Problem& problem = path.problem;
  const WorkspaceLayout w = workspace_layout(problem, path.config);
  PlanParams p{};
  p.ids = path.ids;
  p.rows = static_cast<int32_t>(problem.rows);
  p.choices = problem.choices;
  p.first_expert = path.first_expert;
  p.experts = problem.experts_local;
  p.tile_rows = path.config.tile_rows;
  p.even = path.config.even;
  p.block_counts = at<int32_t>(path, w.block_counts);
  p.row_slot = at<int32_t>(path, w.row_slot);
  p.units = at<Unit>(path, w.units);
  p.control = at<uint32_t>(path, w.control);
  p.ready = at<uint32_t>(path, w.ready);
  const auto shared_bytes = [](int experts) { return static_cast<size_t>(experts) * (2 * kPlanWarps + 1) * 4; };
  static const cudaError_t prepared =
      std::max({allow_shared(plan_count<true>, shared_bytes(512)), allow_shared(plan_place<true>, shared_bytes(512)),
                allow_shared(plan_count<false>, shared_bytes(512)), allow_shared(plan_place<false>, shared_bytes(512))});
  if (prepared != cudaSuccess) return prepared;
  const auto blocks = static_cast<unsigned>(path.config.plan_blocks);
  const size_t shared = shared_bytes(p.experts);
  const bool vector = p.choices % 4 == 0 && reinterpret_cast<uintptr_t>(p.ids) % 16 == 0;
  if (blocks > 1) {
    const cudaError_t e =
        launch(vector ? plan_count<true> : plan_count<false>, blocks, kPlanThreads, shared, 1, path.dependent_launch, stream, p);
    if (e != cudaSuccess) return e;
  }
  return launch(vector ? plan_place<true> : plan_place<false>, blocks, kPlanThreads, shared, 1, path.dependent_launch, stream, p);
}

cudaError_t quantise(const ExpertPath& path, cudaStream_t stream) {
  const WorkspaceLayout w = workspace_layout(path.problem, path.config);
  QuantiseParams p{};
  p.x = static_cast<const uint4*>(path.x);
  p.row_slot = at<int32_t>(path, w.row_slot);
  p.panels = at<uint8_t>(path, w.x);
  p.scales = at<float>(path, w.x_scale);
  p.slots = path.config.slots;
  p.width = static_cast<int32_t>(path.problem.width);
  p.choices = path.problem.choices;
  return launch(quantise_rows<1>, static_cast<unsigned>(path.problem.rows), row_threads(path.problem.width / 16), 0, 1,
                path.dependent_launch, stream, p);
}

cudaError_t mlp(const ExpertPath& path, cudaStream_t stream) {
  if (path.problem.rows == 0) return cudaSuccess;
  const WorkspaceLayout w = workspace_layout(path.problem, path.config);
  MlpParams p{};
  p.gate = path.experts.gate;
  p.up = path.experts.up;
  p.down = path.experts.down;
  p.gate_stride = path.experts.gate_stride;
  p.up_stride = path.experts.up_stride;
  p.down_stride = path.experts.down_stride;
  p.gate_scale = path.experts.gate_scale;
  p.up_scale = path.experts.up_scale;
  p.down_scale = path.experts.down_scale;
  const int64_t scales = path.problem.width / kBlock * (path.problem.inner / kBlock);
  const auto stride_or = [scales](int64_t stride) { return stride > 0 ? stride : scales; };
  p.gate_scale_stride = stride_or(path.experts.gate_scale_stride);
  p.up_scale_stride = stride_or(path.experts.up_scale_stride);
  p.down_scale_stride = stride_or(path.experts.down_scale_stride);
  p.x = at<uint8_t>(path, w.x);
  p.x_scale = at<float>(path, w.x_scale);
  p.h = at<uint8_t>(path, w.h);
  p.h_scale = at<float>(path, w.h_scale);
  p.y = at<uint8_t>(path, w.y);
  p.units = at<Unit>(path, w.units);
  p.control = at<uint32_t>(path, w.control);
  p.ready = at<uint32_t>(path, w.ready);
  p.slots = path.config.slots;
  p.width_blocks = static_cast<int32_t>(path.problem.width / kBlock);
  p.inner_blocks = static_cast<int32_t>(path.problem.inner / kBlock);
  p.limit = path.limit;
  p.phases = path.phases;
  switch (path.config.variant) {
    case Variant::kDecode: return start_mlp_decode(p, path.dependent_launch, stream);
    case Variant::kMedium: return start_mlp_medium(p, path.dependent_launch, stream);
    case Variant::kPrefill: return start_mlp_prefill(p, path.dependent_launch, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t combine(const ExpertPath& path, cudaStream_t stream) {
  const WorkspaceLayout w = workspace_layout(path.problem, path.config);
  CombineParams p{};
  p.y = at<uint8_t>(path, w.y);
  p.row_slot = at<int32_t>(path, w.row_slot);
  p.weights = path.weights;
  p.shared = static_cast<const uint4*>(path.shared);
  p.out = static_cast<uint4*>(path.out);
  p.slots = path.config.slots;
  p.width = static_cast<int32_t>(path.problem.width);
  p.choices = path.problem.choices;
  const unsigned threads = row_threads(path.problem.width / 8);
  return launch(path.problem.width / 8 > 256 ? combine_rows<2> : combine_rows<1>, static_cast<unsigned>(path.problem.rows), threads, 0, 1,
                path.dependent_launch, stream, p);
}

cudaError_t run(const ExpertPath& path, cudaStream_t stream) {
  for (const auto step : {plan, quantise, mlp, combine}) {
    const cudaError_t e = step(path, stream);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

cudaError_t pack_weight(void* packed, const void* row_major, int64_t n, int64_t k, bool permute_rows, cudaStream_t stream) {
  if (n % kBlock != 0 || k % kBlock != 0) return cudaErrorInvalidValue;
  const int64_t blocks = std::min<int64_t>((n * (k / 16) + 255) / 256, int64_t{multiprocessors()} * 8);
  return launch(pack_weight_rows, static_cast<unsigned>(blocks), 256, 0, 1, false, stream, static_cast<uint8_t*>(packed),
                static_cast<const uint8_t*>(row_major), n, k, permute_rows);
}

cudaError_t route(const Route& r, cudaStream_t stream) {
  if (r.width % (32 * kRouteCluster) != 0 || r.experts % kRouteWarpExperts != 0 || r.experts > 512 || r.choices > kMaxChoices ||
      r.choices > r.experts)
    return cudaErrorInvalidValue;
  RouteParams p{};
  p.x = static_cast<const uint4*>(r.x);
  p.router = static_cast<const uint4*>(r.router);
  p.bias = r.bias;
  p.scores = r.scores;
  p.ids = r.ids;
  p.weights = r.weights;
  p.rows = r.rows;
  p.width = static_cast<int32_t>(r.width);
  p.experts = r.experts;
  p.choices = r.choices;
  p.renormalise = r.renormalise;
  p.scaling = r.scaling;
  const unsigned threads = static_cast<unsigned>(r.experts);  // one warp for each 32 experts
  const auto start = [&](auto kernel, int tiles) {
    const size_t shared = static_cast<size_t>(16 * tiles * (r.experts + 1) + 2 * tiles * r.experts) * 4;
    const cudaError_t e = allow_shared(kernel, shared);
    if (e != cudaSuccess) return e;
    const int64_t clusters = (r.rows + 16 * tiles - 1) / (16 * tiles);
    return launch(kernel, static_cast<unsigned>(clusters * kRouteCluster), threads, shared, kRouteCluster, r.dependent_launch, stream, p);
  };
  // Few rows: small tiles, so that all SMs read. Many: larger ones, so that the router is read less often. The sums are the same.
  if (r.experts > 288) return r.rows > 128 ? start(route_rows<2, 512>, 2) : start(route_rows<1, 512>, 1);
  if (r.rows > 4096) return start(route_rows<4, 288>, 4);
  return r.rows > 128 ? start(route_rows<2, 288>, 2) : start(route_rows<1, 288>, 1);
}

}  // namespace baton::cuda::moe
