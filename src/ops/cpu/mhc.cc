// mHC on the CPU: expand, coefficients, collapse and norm.
#include <algorithm>
#include <cmath>

#include "ops/cpu/backend.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::MhcCoefficients;
using ops::MhcExpandParams;
using ops::MhcFinalParams;
using ops::MhcMixParams;

// Rows of a couple of thousand floats: below this, waking the other threads costs more than the work.
constexpr int64_t kRowGrain = 4;

// Three rows of floats per thread: the streams, a sub-layer's output, a collapsed row.
struct RowScratch {
  float* streams;
  float* y;
  float* u;
  RowScratch(Arena& arena, int64_t s, int64_t d)
      : streams(arena.array<float>(s * d)), y(arena.array<float>(std::max(s, d))), u(arena.array<float>(d)) {}
  static int64_t bytes(int64_t s, int64_t d) {
    Arena plan;
    RowScratch(plan, s, d);
    return plan.peak();
  }
};

// Runs fn(row, scratch) over all rows.
template <class Fn>
void for_rows(ops::Context& ctx, int64_t rows, int64_t s, int64_t d, const Fn& fn) {
  const int64_t mark = ctx.workspace->mark();
  const int64_t bytes = RowScratch::bytes(s, d);
  std::byte* scratch = ctx.workspace->array<std::byte>(ctx.executor->pool().size() * bytes);
  ctx.executor->pool().parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end, int thread) {
    Arena arena(scratch + thread * bytes, bytes);
    RowScratch row(arena, s, d);
    for (int64_t r = begin; r < end; ++r) fn(r, row);
  });
  ctx.workspace->release(mark);
}

int64_t rows_workspace(const ops::Executor& e, int64_t s, int64_t d) {
  return e.pool().size() * RowScratch::bytes(s, d) + kBufferAlignment;
}

// The expanded streams of row r, rounded to their type, both in memory and (as floats) in the scratch or in place.
const float* expand_row(const RowKernels& kernels, const MatrixView& streams, const ConstMatrixView& y, const MhcCoefficients& from,
                        int64_t s, int64_t r, RowScratch& scratch) {
  const int64_t d = streams.cols / s;
  const float* output = float_row(kernels, y, r, 0, d, scratch.y);
  if (streams.dtype == DType::kF32) {
    kernels.mhc_expand(streams.row<float>(r), output, from.post.row<float>(r), from.comb.row<float>(r), s, d);
    return streams.row<float>(r);
  }
  kernels.widen(streams.row_bytes(r), streams.dtype, scratch.streams, s * d);
  kernels.mhc_expand(scratch.streams, output, from.post.row<float>(r), from.comb.row<float>(r), s, d);
  kernels.narrow(scratch.streams, streams.row_bytes(r), streams.dtype, s * d);
  kernels.widen(streams.row_bytes(r), streams.dtype, scratch.streams, s * d);
  return scratch.streams;
}

void run_expand(ops::Context& ctx, const MhcExpandParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t s = p.stream_count;
  for_rows(ctx, p.streams.rows, s, p.streams.cols / s,
           [&](int64_t r, RowScratch& scratch) { expand_row(kernels, p.streams, p.y, p.from, s, r, scratch); });
}

// m[(2 + s) s] -> pre[s], post[s], comb[s, s].
void coefficients(const MhcMixParams& p, const float* m, float* pre, float* post, float* comb) {
  const int64_t s = p.stream_count;
  const auto logistic = [](float x) { return 1.0F / (1.0F + std::exp(-x)); };
  for (int64_t i = 0; i < s; ++i) pre[i] = logistic(m[i] * p.scale[0] + p.base[i]) + p.hc_eps;
  for (int64_t i = 0; i < s; ++i) post[i] = 2.0F * logistic(m[s + i] * p.scale[1] + p.base[s + i]);
  const float* logits = m + 2 * s;
  const float* base = p.base + 2 * s;
  for (int64_t i = 0; i < s; ++i) {
    float* row = comb + i * s;
    float top = -INFINITY;
    for (int64_t j = 0; j < s; ++j) top = std::fmax(top, row[j] = logits[i * s + j] * p.scale[2] + base[i * s + j]);
    float sum = 0;
    for (int64_t j = 0; j < s; ++j) sum += row[j] = std::exp(row[j] - top);
    for (int64_t j = 0; j < s; ++j) row[j] = row[j] / sum + p.hc_eps;
  }
  const auto normalise = [&](int64_t step, int64_t stride) {  // lines of `stride` apart elements, starting `step` apart
    for (int64_t i = 0; i < s; ++i) {
      float sum = p.hc_eps;
      for (int64_t j = 0; j < s; ++j) sum += comb[i * step + j * stride];
      for (int64_t j = 0; j < s; ++j) comb[i * step + j * stride] /= sum;
    }
  };
  normalise(1, s);  // columns
  for (int iteration = 1; iteration < p.sinkhorn_iterations; ++iteration) {
    normalise(s, 1);
    normalise(1, s);
  }
}

struct MixScratch {
  MatrixView mix;          // [m, (2 + s) s]
  MatrixView inverse_rms;  // [m, 1]
  MixScratch(Arena& arena, const MhcMixParams& p)
      : mix(arena.matrix(DType::kF32, p.streams.rows, (2 + p.stream_count) * p.stream_count)),
        inverse_rms(arena.matrix(DType::kF32, p.streams.rows, 1)) {}
};

void run_mix(ops::Context& ctx, const MhcMixParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t s = p.stream_count;
  const int64_t d = p.streams.cols / s;
  const int64_t mark = ctx.workspace->mark();
  const MixScratch scratch(*ctx.workspace, p);
  for_rows(ctx, p.streams.rows, s, d, [&](int64_t r, RowScratch& row) {
    const float* x =
        p.y.empty() ? float_row(kernels, p.streams, r, 0, s * d, row.streams) : expand_row(kernels, p.streams, p.y, p.from, s, r, row);
    *scratch.inverse_rms.row<float>(r) = 1.0F / std::sqrt(kernels.sum_squares(x, s * d) / static_cast<float>(s * d) + p.norm_eps);
  });
  const ops::GemmOutput product{p.fn, scratch.mix};
  ctx.executor->table().gemm.run(ctx, {.x = p.streams, .outputs = {&product, 1}});
  for_rows(ctx, p.streams.rows, s, d, [&](int64_t r, RowScratch& row) {
    float* m = scratch.mix.row<float>(r);
    const float inverse = *scratch.inverse_rms.row<float>(r);
    for (int64_t i = 0; i < scratch.mix.cols; ++i) m[i] *= inverse;
    float* pre = row.y;  // free by now, and at least s floats
    coefficients(p, m, pre, p.to.post.row<float>(r), p.to.comb.row<float>(r));
    const float* x = float_row(kernels, p.streams, r, 0, s * d, row.streams);
    kernels.mhc_collapse(x, pre, row.u, s, d);
    if (p.x.dtype == DType::kBF16)
      for (int64_t i = 0; i < d; ++i) row.u[i] = to_float(to_bf16(row.u[i]));
    kernels.rms_norm(row.u, p.norm_weight, p.norm_eps, row.u, d);
    write_row(kernels, row.u, p.x, r, 0, d);
  });
  ctx.workspace->release(mark);
}

void run_final(ops::Context& ctx, const MhcFinalParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t s = p.stream_count;
  const int64_t d = p.streams.cols / s;
  for_rows(ctx, p.streams.rows, s, d, [&](int64_t r, RowScratch& row) {
    const float* x = float_row(kernels, p.streams, r, 0, s * d, row.streams);
    for (int64_t i = 0; i < s; ++i) row.y[i] = 1.0F / static_cast<float>(s);
    kernels.mhc_collapse(x, row.y, row.u, s, d);
    if (p.norm_weight == nullptr) return write_row(kernels, row.u, p.h, r, 0, d);
    if (p.h.dtype == DType::kBF16)
      for (int64_t i = 0; i < d; ++i) row.u[i] = to_float(to_bf16(row.u[i]));
    kernels.rms_norm(row.u, p.norm_weight, p.norm_eps, row.u, d);
    write_row(kernels, row.u, p.h, r, 0, d);
  });
}

}  // namespace

void register_mhc(ops::OpTable& table) {
  table.mhc_expand = {
      run_expand, [](const MhcExpandParams& p) { return is_float_type(p.streams.dtype) && is_float_type(p.y.dtype); },
      [](const ops::Executor& e, const MhcExpandParams& p) { return rows_workspace(e, p.stream_count, p.streams.cols / p.stream_count); }};
  table.mhc_mix = {run_mix, [](const MhcMixParams& p) { return is_float_type(p.streams.dtype) && is_float_type(p.x.dtype); },
                   [](const ops::Executor& e, const MhcMixParams& p) {
                     Arena plan;
                     const MixScratch scratch(plan, p);
                     const ops::GemmOutput product{p.fn, scratch.mix};
                     const int64_t gemm = e.table().gemm.workspace_bytes(e, {.x = p.streams, .outputs = {&product, 1}});
                     return plan.peak() + std::max(gemm, rows_workspace(e, p.stream_count, p.streams.cols / p.stream_count));
                   }};
  table.mhc_final = {
      run_final, [](const MhcFinalParams& p) { return is_float_type(p.streams.dtype) && is_float_type(p.h.dtype); },
      [](const ops::Executor& e, const MhcFinalParams& p) { return rows_workspace(e, p.stream_count, p.streams.cols / p.stream_count); }};
}

}  // namespace baton::cpu
