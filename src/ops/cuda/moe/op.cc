#include "ops/cuda/moe/op.h"

#include <algorithm>

#include "ops/cuda/moe/launch.h"

namespace baton::cuda::moe {
namespace {

const uint8_t* bytes_of(const ops::WeightView& w) { return static_cast<const uint8_t*>(w.data); }

// Of matrices at equal distances.
struct Distances {
  int64_t bytes = 0;
  int64_t scales = 0;  // floats
};
Distances distances(const ops::WeightView* w, int64_t count) {
  if (count < 2) return {w[0].n * w[0].k, w[0].n / ops::kScaleBlock * (w[0].k / ops::kScaleBlock)};
  return {bytes_of(w[1]) - bytes_of(w[0]), w[1].scale - w[0].scale};
}
bool evenly_spaced(std::span<const ops::WeightView> w) {
  const Distances d = distances(w.data(), std::ssize(w));
  if (d.bytes <= 0 || d.bytes % 16 != 0 || d.scales <= 0 || d.scales % 4 != 0) return false;  // for the copy engine
  for (size_t e = 0; e < w.size(); ++e) {
    const auto i = static_cast<int64_t>(e);
    if (w[e].dtype != DType::kF8E4M3 || w[e].scale == nullptr || w[e].n != w[0].n || w[e].k != w[0].k ||
        bytes_of(w[e]) != bytes_of(w[0]) + i * d.bytes || w[e].scale != w[0].scale + i * d.scales)
      return false;
  }
  return true;
}

Problem problem_of(const ops::MoeExpertsParams& p) {
  return {.rows = p.x.rows,
          .choices = p.from.k,
          .experts_total = p.from.experts,
          .experts_local = p.from.experts,
          .width = p.gate[0].k,
          .inner = p.gate[0].n};
}

bool whole_rows(const ConstMatrixView& m, int64_t cols) {
  return m.dtype == DType::kBF16 && m.cols == cols && m.stride == cols && reinterpret_cast<uintptr_t>(m.data) % 16 == 0;
}

}  // namespace

bool preparable(std::span<const ops::WeightView> gate, std::span<const ops::WeightView> up, std::span<const ops::WeightView> down,
                ops::ActivationQuant quant) {
  if (gate.empty() || gate.size() != up.size() || gate.size() != down.size() || quant != ops::ActivationQuant::kE4m3Block) return false;
  const auto experts = static_cast<int32_t>(gate.size());
  const Problem problem{
      .rows = 1, .choices = 1, .experts_total = experts, .experts_local = experts, .width = gate[0].k, .inner = gate[0].n};
  return supported(problem) && evenly_spaced(gate) && evenly_spaced(up) && evenly_spaced(down) && up[0].n == gate[0].n &&
         up[0].k == gate[0].k && down[0].n == gate[0].k && down[0].k == gate[0].n;
}

cudaError_t prepare(std::span<const ops::WeightView> gate, std::span<const ops::WeightView> up, std::span<const ops::WeightView> down,
                    void* scratch, cudaStream_t stream) {
  const auto pack = [&](const ops::WeightView& w, bool permute_rows) {
    const cudaError_t e = cudaMemcpyAsync(scratch, w.data, static_cast<size_t>(w.n * w.k), cudaMemcpyDeviceToDevice, stream);
    return e != cudaSuccess ? e : pack_weight(const_cast<void*>(w.data), scratch, w.n, w.k, permute_rows, stream);
  };
  cudaError_t e = cudaSuccess;
  for (size_t i = 0; i < gate.size() && e == cudaSuccess; ++i) {
    e = pack(gate[i], true);
    if (e == cudaSuccess) e = pack(up[i], true);
    if (e == cudaSuccess) e = pack(down[i], false);
  }
  return e;
}

bool supported(const ops::MoeExpertsParams& p) {
  const Problem problem = problem_of(p);
  return supported(problem) && p.quant == ops::ActivationQuant::kE4m3Block && whole_rows(p.x, problem.width) &&
         whole_rows(p.out, problem.width) && (p.shared.empty() || whole_rows(p.shared, problem.width));
}

int64_t workspace_bytes(const ops::MoeExpertsParams& p) {
  const Problem problem = problem_of(p);
  return workspace_layout(problem, configure(problem)).bytes;
}

cudaError_t run(const ops::MoeExpertsParams& p, void* workspace, bool dependent_launch, cudaStream_t stream) {
  if (p.x.rows == 0) return cudaSuccess;
  ExpertPath path;
  path.problem = problem_of(p);
  path.config = configure(path.problem);
  path.x = p.x.data;
  path.ids = p.from.ids;
  path.weights = p.from.weights;
  const int64_t experts = p.from.experts;
  const Distances gate = distances(p.gate, experts), up = distances(p.up, experts), down = distances(p.down, experts);
  path.experts = {.gate = bytes_of(p.gate[0]),
                  .up = bytes_of(p.up[0]),
                  .down = bytes_of(p.down[0]),
                  .gate_stride = gate.bytes,
                  .up_stride = up.bytes,
                  .down_stride = down.bytes,
                  .gate_scale = p.gate[0].scale,
                  .up_scale = p.up[0].scale,
                  .down_scale = p.down[0].scale,
                  .gate_scale_stride = gate.scales,
                  .up_scale_stride = up.scales,
                  .down_scale_stride = down.scales};
  path.limit = p.limit;
  path.shared = p.shared.empty() ? nullptr : p.shared.data;
  path.out = p.out.data;
  path.workspace = workspace;
  path.dependent_launch = dependent_launch;
  return run(path, stream);
}

bool supported(const ops::MoeRouteParams& p) {
  return p.to.offsets == nullptr && p.router.dtype == DType::kBF16 && whole_rows(p.x, p.router.k) && p.router.k % 256 == 0 &&
         p.to.experts % 32 == 0 && p.to.experts <= 512 && p.to.k >= 1 && p.to.k <= std::min(16, p.to.experts) &&
         p.scores.dtype == DType::kF32 && p.scores.stride == p.to.experts;
}

cudaError_t run(const ops::MoeRouteParams& p, bool dependent_launch, cudaStream_t stream) {
  if (p.x.rows == 0) return cudaSuccess;
  Route r;
  r.rows = p.x.rows;
  r.width = p.router.k;
  r.experts = p.to.experts;
  r.choices = p.to.k;
  r.x = p.x.data;
  r.router = p.router.data;
  r.bias = p.bias;
  r.renormalise = p.renormalise;
  r.scaling = p.scaling;
  r.scores = reinterpret_cast<float*>(p.scores.data);
  r.ids = p.to.ids;
  r.weights = p.to.weights;
  r.dependent_launch = dependent_launch;
  return route(r, stream);
}

}  // namespace baton::cuda::moe
