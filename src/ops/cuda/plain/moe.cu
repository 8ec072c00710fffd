// Experts: choice and sort, products grouped by expert, combination.
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/product.cuh"
#include "ops/cuda/plain/register.h"

namespace baton::cuda::plain {
namespace {

struct ChooseArgs {
  Rows scores;
  const float* bias;
  int32_t* ids;
  float* weights;
  int32_t rows, experts, k;
  float scaling;
  bool renormalise;
};

// A warp a row. A biased score that is not a number ranks below everything: k experts are always found.
__global__ void __launch_bounds__(kThreads) choose_experts(ChooseArgs p) {
  const int64_t r = int64_t{blockIdx.x} * kWarps + warp();
  if (r >= p.rows) return;
  auto* score = reinterpret_cast<float*>(p.scores.row(r));
  for (int e = lane(); e < p.experts; e += 32) score[e] = sigmoid(score[e]);
  __syncwarp();
  Best last{infinity(), -1};
  float sum = 0;
  for (int j = 0; j < p.k; ++j) {
    Best best{-infinity(), INT32_MAX};
    for (int e = lane(); e < p.experts; e += 32) {
      const float x = score[e] + p.bias[e];
      const Best candidate{x == x ? x : -infinity(), e};
      const bool behind = candidate.value < last.value || (candidate.value == last.value && candidate.index > last.index);
      if (behind) best = better(best, candidate);
    }
    last = warp_best(best);
    if (lane() == 0) p.ids[r * p.k + j] = last.index;
    sum += score[last.index];
  }
  if (lane() != 0) return;
  for (int j = 0; j < p.k; ++j) {
    const float s = p.scaling * score[p.ids[r * p.k + j]];
    p.weights[r * p.k + j] = p.renormalise ? s / (sum + 1e-20F) : s;
  }
}

struct SortArgs {
  const int32_t* ids;
  int32_t* offsets;
  int32_t* slot_row;
  int32_t* row_slot;
  int32_t choices, experts, k;
};

// A block of one warp an expert; its slots keep the order of the rows.
__global__ void __launch_bounds__(32) count_choices(SortArgs p) {
  const auto e = static_cast<int32_t>(blockIdx.x);
  int count = 0;
  for (int i = lane(); i < p.choices; i += 32) count += p.ids[i] == e ? 1 : 0;
  count = static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, static_cast<uint32_t>(count)));
  if (lane() == 0) p.offsets[e + 1] = count;
  if (lane() == 0 && e == 0) p.offsets[0] = 0;
}
__global__ void __launch_bounds__(32) sum_counts(SortArgs p) {
  if (lane() != 0) return;
  for (int e = 0; e < p.experts; ++e) p.offsets[e + 1] += p.offsets[e];
}
__global__ void __launch_bounds__(32) place_choices(SortArgs p) {
  const auto e = static_cast<int32_t>(blockIdx.x);
  int next = p.offsets[e];
  for (int first = 0; first < p.choices; first += 32) {
    const int i = first + lane();
    const bool mine = i < p.choices && p.ids[i] == e;
    const uint32_t all = __ballot_sync(0xFFFFFFFFU, mine);
    if (mine) {
      const int slot = next + __popc(all & ((1U << lane()) - 1U));
      p.slot_row[slot] = i / p.k;
      p.row_slot[i] = slot;
    }
    next += __popc(all);
  }
}

struct CombineArgs {
  ConstRows y, shared;
  Rows out;
  const int32_t* row_slot;
  const float* weights;
  int32_t k, width;
};

__global__ void __launch_bounds__(kThreads) combine(CombineArgs p) {
  const int64_t r = blockIdx.x;
  for (int c = thread(); c < p.width; c += kThreads) {
    float sum = p.shared.data != nullptr ? p.shared.at(r, c) : 0.0F;
    for (int j = 0; j < p.k; ++j) sum = fmaf(p.weights[r * p.k + j], p.y.at(p.row_slot[r * p.k + j], c), sum);
    p.out.put(r, c, sum);
  }
}

void run_route(ops::Context& ctx, const ops::MoeRouteParams& p) {
  if (p.x.rows == 0) {
    if (p.to.offsets == nullptr) return;
    launched(ctx, cudaMemsetAsync(p.to.offsets, 0, static_cast<size_t>(p.to.experts + 1) * sizeof(int32_t), stream(ctx)), "moe_route");
    return;
  }
  BATON_CHECK(p.scores.rows == p.x.rows && p.scores.cols == p.to.experts && p.router.n == p.to.experts);
  ProductParams product = plain_rows(p.x);
  product.w = weight_set(&p.router, 1);
  product.y = rows_of(p.scores);
  product.n = p.to.experts;
  product.k = static_cast<int32_t>(p.router.k);
  product.rows = static_cast<int32_t>(p.x.rows);
  cudaError_t e = launch_product(product, stream(ctx));
  const ChooseArgs choose{rows_of(p.scores), p.bias, p.to.ids,  p.to.weights, static_cast<int32_t>(p.x.rows),
                          p.to.experts,      p.to.k, p.scaling, p.renormalise};
  const auto warps = static_cast<unsigned>((p.x.rows + kWarps - 1) / kWarps);
  if (e == cudaSuccess) e = launch(choose_experts, warps, kThreads, 0, 1, false, stream(ctx), choose);
  if (p.to.offsets == nullptr) return launched(ctx, e, "moe_route");
  const SortArgs sort{p.to.ids, p.to.offsets, p.to.slot_row, p.to.row_slot, static_cast<int32_t>(p.x.rows * p.to.k), p.to.experts, p.to.k};
  if (e == cudaSuccess) e = launch(count_choices, blocks_of(p.to.experts), 32, 0, 1, false, stream(ctx), sort);
  if (e == cudaSuccess) e = launch(sum_counts, 1, 32, 0, 1, false, stream(ctx), sort);
  if (e == cudaSuccess) e = launch(place_choices, blocks_of(p.to.experts), 32, 0, 1, false, stream(ctx), sort);
  launched(ctx, e, "moe_route");
}

// fill(product, first expert, experts): the weights of a run of experts that lie at equal distances.
template <class Fill>
cudaError_t for_expert_runs(ProductParams product, int64_t experts, const Fill& fill, cudaStream_t s) {
  cudaError_t e = cudaSuccess;
  for (int64_t first = 0; first < experts && e == cudaSuccess;) {
    const int64_t n = fill(product, first);
    product.first_member = static_cast<int32_t>(first);
    product.members = static_cast<int32_t>(n);
    e = launch_product(product, s);
    first += n;
  }
  return e;
}

void run_gate_up(ops::Context& ctx, const ops::MoeGateUpParams& p) {
  if (p.x.rows == 0) return;
  const int64_t mark = ctx.workspace->mark();
  cudaError_t e = cudaSuccess;
  ProductParams product = plain_rows(p.x);
  if (rounds(p.gate[0], p.quant)) {
    const RoundedRows rows(*ctx.workspace, p.x);
    e = rows.fill(stream(ctx));
    rows.use(product);
  }
  product.limit = p.limit;
  product.y = rows_of(p.h);
  product.n = static_cast<int32_t>(p.gate[0].n);
  product.k = static_cast<int32_t>(p.gate[0].k);
  product.rows = static_cast<int32_t>(p.x.rows * p.from.k);
  product.offsets = p.from.offsets;
  product.gather = p.from.slot_row;
  const auto fill = [&](ProductParams& to, int64_t first) {
    const int64_t left = p.from.experts - first;
    const int64_t n = std::min(evenly_spaced(p.gate + first, left), evenly_spaced(p.up + first, left));
    to.w = weight_set(p.gate + first, n);
    to.up = weight_set(p.up + first, n);
    return n;
  };
  if (e == cudaSuccess) e = for_expert_runs(product, p.from.experts, fill, stream(ctx));
  ctx.workspace->release(mark);
  launched(ctx, e, "moe_gate_up");
}

void run_down(ops::Context& ctx, const ops::MoeDownParams& p) {
  if (p.h.rows == 0) return;
  const int64_t mark = ctx.workspace->mark();
  cudaError_t e = cudaSuccess;
  ProductParams product = plain_rows(p.h);
  if (rounds(p.down[0], p.quant)) {
    const RoundedRows rows(*ctx.workspace, p.h);
    e = rows.fill(stream(ctx));
    rows.use(product);
  }
  product.y = rows_of(p.y);
  product.n = static_cast<int32_t>(p.down[0].n);
  product.k = static_cast<int32_t>(p.down[0].k);
  product.rows = static_cast<int32_t>(p.h.rows);
  product.offsets = p.from.offsets;
  const auto fill = [&](ProductParams& to, int64_t first) {
    const int64_t n = evenly_spaced(p.down + first, p.from.experts - first);
    to.w = weight_set(p.down + first, n);
    return n;
  };
  if (e == cudaSuccess) e = for_expert_runs(product, p.from.experts, fill, stream(ctx));
  ctx.workspace->release(mark);
  launched(ctx, e, "moe_down");
}

void run_combine(ops::Context& ctx, const ops::MoeCombineParams& p) {
  const CombineArgs a{
      rows_of(p.y), rows_of(p.shared), rows_of(p.out), p.from.row_slot, p.from.weights, p.from.k, static_cast<int32_t>(p.out.cols)};
  launched(ctx, launch(combine, blocks_of(p.out.rows), kThreads, 0, 1, false, stream(ctx), a), "moe_combine");
}

}  // namespace

void register_moe(ops::OpTable& table) {
  table.moe_route = {run_route,
                     [](const ops::MoeRouteParams& p) {
                       return is_float(p.x.dtype) && is_float(p.router.dtype) && p.scores.dtype == DType::kF32 &&
                              p.to.k <= ops::kMaxExpertsPerToken;
                     },
                     [](const ops::Executor&, const ops::MoeRouteParams&) { return int64_t{0}; }};
  table.moe_gate_up = {run_gate_up,
                       [](const ops::MoeGateUpParams& p) {
                         return is_float(p.x.dtype) && is_float(p.h.dtype) && is_weight(p.gate[0].dtype) &&
                                p.up[0].dtype == p.gate[0].dtype;
                       },
                       [](const ops::Executor&, const ops::MoeGateUpParams& p) {
                         return rounds(p.gate[0], p.quant) ? RoundedRows::bytes(p.x) : int64_t{0};
                       }};
  table.moe_down = {
      run_down, [](const ops::MoeDownParams& p) { return is_float(p.h.dtype) && is_float(p.y.dtype) && is_weight(p.down[0].dtype); },
      [](const ops::Executor&, const ops::MoeDownParams& p) { return rounds(p.down[0], p.quant) ? RoundedRows::bytes(p.h) : int64_t{0}; }};
  table.moe_combine = {
      run_combine, [](const ops::MoeCombineParams& p) { return is_float(p.y.dtype) && is_float(p.out.dtype) && is_float(p.shared.dtype); },
      [](const ops::Executor&, const ops::MoeCombineParams&) { return int64_t{0}; }};
}

}  // namespace baton::cuda::plain
