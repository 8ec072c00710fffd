// The experts on the CPU: every expert's rows are one product of the launch.
#include <algorithm>

#include "ops/cpu/backend.h"
#include "ops/cpu/moe_route.h"
#include "ops/cpu/product.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::MoeCombineParams;
using ops::MoeDownParams;
using ops::MoeGateUpParams;
using ops::MoeRouteParams;

constexpr int64_t kCombineGrain = 8;

bool is_weight_type(DType t) { return is_float_type(t) || t == DType::kF8E4M3; }

// All experts of a layer have the type of the first.
RowForm form_of(const ops::Executor& e, DType x, const ops::WeightView* experts, ops::ActivationQuant quant) {
  return row_form(e.gemms(), x, experts[0].dtype, quant);
}

// An expert may get every row of the launch.
struct GateUp {
  RowSource rows;
  ProductList products;
  GateUp(Arena& arena, const ops::Executor& e, const MoeGateUpParams& p)
      : rows(arena, e.gemms(), p.x, 1, form_of(e, p.x.dtype, p.gate, p.quant)),
        products(arena, e, {.products = p.from.experts, .rows = p.x.rows, .copy_bytes = rows.copy_bytes(), .gated = true}) {}
};

struct Down {
  RowSource rows;
  ProductList products;
  Down(Arena& arena, const ops::Executor& e, const MoeDownParams& p)
      : rows(arena, e.gemms(), p.h, 1, form_of(e, p.h.dtype, p.down, p.quant)),
        products(arena, e,
                 {.products = p.from.experts,
                  .rows = p.h.rows / std::max<int64_t>(1, p.from.k),
                  .copy_bytes = rows.converts() ? rows.copy_bytes() : 0}) {}
};

void run_gate_up(ops::Context& ctx, const MoeGateUpParams& p) {
  if (p.x.rows == 0) return;
  const ops::Executor& e = *ctx.executor;
  const int64_t mark = ctx.workspace->mark();
  GateUp launch(*ctx.workspace, e, p);
  launch.rows.fill(e);
  for (int32_t i = 0; i < p.from.experts; ++i) {
    const int32_t first = p.from.offsets[i];
    const int32_t count = p.from.offsets[i + 1] - first;
    launch.products.add({.rows = &launch.rows,
                         .index = p.from.slot_row,
                         .first = first,
                         .count = count,
                         .w = p.gate[i],
                         .up = p.up[i],
                         .limit = p.limit,
                         .y = p.h.row_range(first, count)});
  }
  launch.products.run();
  ctx.workspace->release(mark);
}

void run_down(ops::Context& ctx, const MoeDownParams& p) {
  if (p.h.rows == 0) return;
  const ops::Executor& e = *ctx.executor;
  const int64_t mark = ctx.workspace->mark();
  Down launch(*ctx.workspace, e, p);
  launch.rows.fill(e);
  for (int32_t i = 0; i < p.from.experts; ++i) {
    const int32_t first = p.from.offsets[i];
    const int32_t count = p.from.offsets[i + 1] - first;
    launch.products.add({.rows = &launch.rows, .first = first, .count = count, .w = p.down[i], .y = p.y.row_range(first, count)});
  }
  launch.products.run();
  ctx.workspace->release(mark);
}

void run_combine(ops::Context& ctx, const MoeCombineParams& p) {
  const int32_t k = p.from.k;
  BATON_CHECK(k <= ops::kMaxExpertsPerToken && p.out.cols == p.y.cols && (p.shared.empty() || p.shared.cols == p.y.cols));
  const ops::Executor& e = *ctx.executor;
  e.pool().parallel_for(p.out.rows, kCombineGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const void* rows[ops::kMaxExpertsPerToken];
      for (int32_t j = 0; j < k; ++j) rows[j] = p.y.row_bytes(p.from.row_slot[r * k + j]);
      e.gemms().weighted_sum(p.shared.empty() ? nullptr : p.shared.row_bytes(r), p.shared.dtype, rows, p.y.dtype, p.from.weights + r * k, k,
                             p.y.cols, p.out.row_bytes(r), p.out.dtype);
    }
  });
}

}  // namespace

void register_moe(ops::OpTable& table) {
  table.moe_route = {
      run_moe_route,
      [](const MoeRouteParams& p) { return is_float_type(p.x.dtype) && is_float_type(p.router.dtype) && p.scores.dtype == DType::kF32; },
      moe_route_workspace};
  table.moe_gate_up = {run_gate_up,
                       [](const MoeGateUpParams& p) {
                         return is_float_type(p.x.dtype) && is_float_type(p.h.dtype) && is_weight_type(p.gate[0].dtype) &&
                                p.up[0].dtype == p.gate[0].dtype;
                       },
                       [](const ops::Executor& e, const MoeGateUpParams& p) {
                         Arena plan;
                         const GateUp launch(plan, e, p);
                         return plan.peak();
                       }};
  table.moe_down = {
      run_down,
      [](const MoeDownParams& p) { return is_float_type(p.h.dtype) && is_float_type(p.y.dtype) && is_weight_type(p.down[0].dtype); },
      [](const ops::Executor& e, const MoeDownParams& p) {
        Arena plan;
        const Down launch(plan, e, p);
        return plan.peak();
      }};
  table.moe_combine = {
      run_combine,
      [](const MoeCombineParams& p) { return is_float_type(p.y.dtype) && is_float_type(p.out.dtype) && is_float_type(p.shared.dtype); },
      [](const ops::Executor&, const MoeCombineParams&) { return int64_t{0}; }};
}

}  // namespace baton::cpu
