// The dense products of the CPU backend.
#include <algorithm>

#include "ops/cpu/backend.h"
#include "ops/cpu/product.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::GatedMlpParams;
using ops::GemmBatchedParams;
using ops::GemmOutput;
using ops::GemmParams;

bool is_weight_type(DType t) { return is_float_type(t) || t == DType::kF8E4M3; }

// The forms of x that the weights of a launch want; each is prepared once.
struct Sources {
  RowSource of[kRowForms];
  bool used[kRowForms] = {};

  RowSource& get(Arena& arena, const GemmKernels& kernels, ConstMatrixView x, int64_t parts, RowForm form) {
    const auto i = static_cast<size_t>(form);
    if (!used[i]) of[i] = RowSource(arena, kernels, x, parts, form);
    used[i] = true;
    return of[i];
  }
  int64_t copy_bytes() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < kRowForms; ++i)
      if (used[i] && of[i].converts()) bytes = std::max(bytes, of[i].copy_bytes());
    return bytes;
  }
  void fill(const ops::Executor& executor) const {
    for (size_t i = 0; i < kRowForms; ++i)
      if (used[i]) of[i].fill(executor);
  }
};

// What a launch takes from the workspace, the same for planning and running.
struct Launch {
  Sources sources;
  ProductList products;

  Launch(Arena& arena, const ops::Executor& e, const GemmParams& p)
      : Launch(arena, e, prepare(arena, e, p), static_cast<int64_t>(p.outputs.size()), p.x.rows, false) {}
  Launch(Arena& arena, const ops::Executor& e, const GemmBatchedParams& p)
      : Launch(arena, e, prepare(arena, e, p), static_cast<int64_t>(p.w.size()), p.x.rows, false) {}
  Launch(Arena& arena, const ops::Executor& e, const GatedMlpParams& p) : Launch(arena, e, prepare(arena, e, p), 1, p.x.rows, true) {}

 private:
  Launch(Arena& arena, const ops::Executor& e, const Sources& s, int64_t count, int64_t rows, bool gated)
      : sources(s), products(arena, e, {.products = count, .rows = rows, .copy_bytes = s.copy_bytes(), .gated = gated}) {}

  static Sources prepare(Arena& arena, const ops::Executor& e, const GemmParams& p) {
    Sources s;
    for (const GemmOutput& o : p.outputs) s.get(arena, e.gemms(), p.x, 1, row_form(e.gemms(), p.x.dtype, o.w.dtype, p.quant));
    return s;
  }
  static Sources prepare(Arena& arena, const ops::Executor& e, const GemmBatchedParams& p) {
    Sources s;
    for (const ops::WeightView& w : p.w)
      s.get(arena, e.gemms(), p.x, static_cast<int64_t>(p.w.size()), row_form(e.gemms(), p.x.dtype, w.dtype, ops::ActivationQuant::kNone));
    return s;
  }
  static Sources prepare(Arena& arena, const ops::Executor& e, const GatedMlpParams& p) {
    Sources s;
    s.get(arena, e.gemms(), p.x, 1, row_form(e.gemms(), p.x.dtype, p.gate.dtype, p.quant));
    return s;
  }
};

template <class Params>
int64_t workspace(const ops::Executor& e, const Params& p) {
  Arena plan;
  const Launch launch(plan, e, p);
  return plan.peak();
}

void run_gemm(ops::Context& ctx, const GemmParams& p) {
  if (p.x.rows == 0 || p.outputs.empty()) return;
  const ops::Executor& e = *ctx.executor;
  const int64_t mark = ctx.workspace->mark();
  Launch launch(*ctx.workspace, e, p);
  launch.sources.fill(e);
  for (const GemmOutput& o : p.outputs) {
    const RowForm form = row_form(e.gemms(), p.x.dtype, o.w.dtype, p.quant);
    BATON_CHECK(o.y.rows == p.x.rows);
    launch.products.add({.rows = &launch.sources.of[static_cast<size_t>(form)], .count = p.x.rows, .w = o.w, .y = o.y});
  }
  launch.products.run();
  ctx.workspace->release(mark);
}

void run_gemm_batched(ops::Context& ctx, const GemmBatchedParams& p) {
  if (p.x.rows == 0 || p.w.empty()) return;
  const ops::Executor& e = *ctx.executor;
  const int64_t mark = ctx.workspace->mark();
  Launch launch(*ctx.workspace, e, p);
  launch.sources.fill(e);
  const auto parts = static_cast<int64_t>(p.w.size());
  const int64_t n = p.y.cols / parts;
  BATON_CHECK(p.y.rows == p.x.rows && p.x.cols % parts == 0 && p.y.cols % parts == 0);
  for (int64_t b = 0; b < parts; ++b) {
    const ops::WeightView& w = p.w[static_cast<size_t>(b)];
    const RowForm form = row_form(e.gemms(), p.x.dtype, w.dtype, ops::ActivationQuant::kNone);
    launch.products.add(
        {.rows = &launch.sources.of[static_cast<size_t>(form)], .part = b, .count = p.x.rows, .w = w, .y = p.y.columns(b * n, n)});
  }
  launch.products.run();
  ctx.workspace->release(mark);
}

void run_gated_mlp(ops::Context& ctx, const GatedMlpParams& p) {
  if (p.x.rows == 0) return;
  const ops::Executor& e = *ctx.executor;
  const int64_t mark = ctx.workspace->mark();
  Launch launch(*ctx.workspace, e, p);
  launch.sources.fill(e);
  const RowForm form = row_form(e.gemms(), p.x.dtype, p.gate.dtype, p.quant);
  BATON_CHECK(p.h.rows == p.x.rows && p.up.n == p.gate.n && p.up.k == p.gate.k);
  launch.products.add(
      {.rows = &launch.sources.of[static_cast<size_t>(form)], .count = p.x.rows, .w = p.gate, .up = p.up, .limit = p.limit, .y = p.h});
  launch.products.run();
  ctx.workspace->release(mark);
}

}  // namespace

void register_gemm(ops::OpTable& table) {
  table.gemm = {run_gemm,
                [](const GemmParams& p) {
                  return is_float_type(p.x.dtype) && std::all_of(p.outputs.begin(), p.outputs.end(), [](const GemmOutput& o) {
                           return is_weight_type(o.w.dtype) && is_float_type(o.y.dtype);
                         });
                },
                workspace<GemmParams>};
  table.gemm_batched = {run_gemm_batched,
                        [](const GemmBatchedParams& p) {
                          return is_float_type(p.x.dtype) && is_float_type(p.y.dtype) &&
                                 std::all_of(p.w.begin(), p.w.end(), [](const ops::WeightView& w) { return is_float_type(w.dtype); });
                        },
                        workspace<GemmBatchedParams>};
  table.gated_mlp = {run_gated_mlp,
                     [](const GatedMlpParams& p) {
                       return is_float_type(p.x.dtype) && is_weight_type(p.gate.dtype) && p.up.dtype == p.gate.dtype &&
                              is_float_type(p.h.dtype);
                     },
                     workspace<GatedMlpParams>};
}

}  // namespace baton::cpu
