// Dense products: gemm, gemm_batched, gated_mlp.
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/product.cuh"
#include "ops/cuda/plain/register.h"

namespace baton::cuda::plain {
namespace {

bool any_rounds(const ops::GemmParams& p) {
  return std::any_of(p.outputs.begin(), p.outputs.end(), [&](const ops::GemmOutput& o) { return rounds(o.w, p.quant); });
}

void run_gemm(ops::Context& ctx, const ops::GemmParams& p) {
  if (p.x.rows == 0) return;
  const int64_t mark = ctx.workspace->mark();
  cudaError_t e = cudaSuccess;
  const bool round = any_rounds(p);
  ProductParams rounded;
  if (round) {
    const RoundedRows rows(*ctx.workspace, p.x);
    e = rows.fill(stream(ctx));
    rows.use(rounded);
  }
  for (const ops::GemmOutput& o : p.outputs) {
    BATON_CHECK_MSG(o.w.k == p.x.cols && o.w.n == o.y.cols && o.y.rows == p.x.rows, "x has {} columns and y {}, the weight is [{}, {}]",
                    p.x.cols, o.y.cols, o.w.n, o.w.k);
    ProductParams product = rounds(o.w, p.quant) ? rounded : plain_rows(p.x);
    product.w = weight_set(&o.w, 1);
    product.y = rows_of(o.y);
    product.n = static_cast<int32_t>(o.w.n);
    product.k = static_cast<int32_t>(o.w.k);
    product.rows = static_cast<int32_t>(p.x.rows);
    if (e == cudaSuccess) e = launch_product(product, stream(ctx));
  }
  ctx.workspace->release(mark);
  launched(ctx, e, "gemm");
}

void run_gemm_batched(ops::Context& ctx, const ops::GemmBatchedParams& p) {
  const auto count = static_cast<int64_t>(p.w.size());
  if (p.x.rows == 0 || count == 0) return;
  cudaError_t e = cudaSuccess;
  for (int64_t first = 0; first < count && e == cudaSuccess;) {
    const ops::WeightView& w = p.w[static_cast<size_t>(first)];
    const int64_t members = evenly_spaced(&w, count - first);
    BATON_CHECK(w.k * count == p.x.cols && w.n * count == p.y.cols);
    ProductParams product = plain_rows(p.x.columns(first * w.k, members * w.k));
    product.x_part = w.k;
    product.w = weight_set(&w, members);
    product.y = rows_of(p.y.columns(first * w.n, members * w.n));
    product.y_part = w.n;
    product.n = static_cast<int32_t>(w.n);
    product.k = static_cast<int32_t>(w.k);
    product.rows = static_cast<int32_t>(p.x.rows);
    product.members = static_cast<int32_t>(members);
    e = launch_product(product, stream(ctx));
    first += members;
  }
  launched(ctx, e, "gemm_batched");
}

void run_gated_mlp(ops::Context& ctx, const ops::GatedMlpParams& p) {
  if (p.x.rows == 0) return;
  const int64_t mark = ctx.workspace->mark();
  cudaError_t e = cudaSuccess;
  BATON_CHECK(p.gate.k == p.x.cols && p.up.k == p.x.cols && p.gate.n == p.h.cols && p.up.n == p.h.cols);
  ProductParams product = plain_rows(p.x);
  if (rounds(p.gate, p.quant)) {
    const RoundedRows rows(*ctx.workspace, p.x);
    e = rows.fill(stream(ctx));
    rows.use(product);
  }
  product.w = weight_set(&p.gate, 1);
  product.up = weight_set(&p.up, 1);
  product.limit = p.limit;
  product.y = rows_of(p.h);
  product.n = static_cast<int32_t>(p.gate.n);
  product.k = static_cast<int32_t>(p.gate.k);
  product.rows = static_cast<int32_t>(p.x.rows);
  if (e == cudaSuccess) e = launch_product(product, stream(ctx));
  ctx.workspace->release(mark);
  launched(ctx, e, "gated_mlp");
}

}  // namespace

void register_gemm(ops::OpTable& table) {
  table.gemm = {run_gemm,
                [](const ops::GemmParams& p) {
                  return is_float(p.x.dtype) && std::all_of(p.outputs.begin(), p.outputs.end(), [](const ops::GemmOutput& o) {
                           return is_weight(o.w.dtype) && is_float(o.y.dtype);
                         });
                },
                [](const ops::Executor&, const ops::GemmParams& p) { return any_rounds(p) ? RoundedRows::bytes(p.x) : int64_t{0}; }};
  table.gemm_batched = {run_gemm_batched,
                        [](const ops::GemmBatchedParams& p) {
                          return is_float(p.x.dtype) && is_float(p.y.dtype) &&
                                 std::all_of(p.w.begin(), p.w.end(), [](const ops::WeightView& w) { return is_float(w.dtype); });
                        },
                        [](const ops::Executor&, const ops::GemmBatchedParams&) { return int64_t{0}; }};
  table.gated_mlp = {
      run_gated_mlp,
      [](const ops::GatedMlpParams& p) {
        return is_float(p.x.dtype) && is_weight(p.gate.dtype) && p.up.dtype == p.gate.dtype && is_float(p.h.dtype);
      },
      [](const ops::Executor&, const ops::GatedMlpParams& p) { return rounds(p.gate, p.quant) ? RoundedRows::bytes(p.x) : int64_t{0}; }};
}

}  // namespace baton::cuda::plain
