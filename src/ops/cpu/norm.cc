// Embedding and RMSNorm on the CPU.
#include "ops/cpu/backend.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::EmbedParams;
using ops::RmsNormParams;

constexpr int64_t kRowGrain = 16;

void run_embed(ops::Context& ctx, const EmbedParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t d = p.table.cols;
  const int64_t mark = ctx.workspace->mark();
  float* scratch = ctx.workspace->array<float>(ctx.executor->pool().size() * d);
  ctx.executor->pool().parallel_for(p.y.rows, kRowGrain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; ++r) {
      BATON_CHECK_MSG(p.ids[r] >= 0 && p.ids[r] < p.table.rows, "token {} of a vocabulary of {}", p.ids[r], p.table.rows);
      const float* e = float_row(kernels, p.table, p.ids[r], 0, d, scratch + thread * d);
      for (int64_t s = 0; s < p.streams; ++s) write_row(kernels, e, p.y, r, s * d, d);
    }
  });
  ctx.workspace->release(mark);
}

void run_rms_norm(ops::Context& ctx, const RmsNormParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t d = p.x.cols;
  const int64_t mark = ctx.workspace->mark();
  float* scratch = ctx.workspace->array<float>(ctx.executor->pool().size() * 2 * d);
  ctx.executor->pool().parallel_for(p.x.rows, kRowGrain, [&](int64_t begin, int64_t end, int thread) {
    float* x = scratch + thread * 2 * d;
    float* sum = x + d;
    for (int64_t r = begin; r < end; ++r) {
      kernels.widen(p.x.row_bytes(r), p.x.dtype, x, d);
      if (!p.add_to.empty()) {
        kernels.widen(p.add_to.row_bytes(r), p.add_to.dtype, sum, d);
        kernels.add(sum, x, d);
        write_row(kernels, sum, p.add_to, r, 0, d);
        kernels.widen(p.add_to.row_bytes(r), p.add_to.dtype, x, d);
      }
      if (p.y.empty()) continue;
      kernels.rms_norm(x, p.weight, p.eps, x, d);
      write_row(kernels, x, p.y, r, 0, d);
    }
  });
  ctx.workspace->release(mark);
}

}  // namespace

void register_rows(ops::OpTable& table) {
  table.embed = {
      run_embed, [](const EmbedParams& p) { return is_float_type(p.table.dtype) && is_float_type(p.y.dtype); },
      [](const ops::Executor& e, const EmbedParams& p) { return align_up(e.pool().size() * p.table.cols * 4, kBufferAlignment); }};
  table.rms_norm = {
      run_rms_norm, [](const RmsNormParams& p) { return is_float_type(p.x.dtype) && is_float_type(p.y.dtype); },
      [](const ops::Executor& e, const RmsNormParams& p) { return align_up(e.pool().size() * 2 * p.x.cols * 4, kBufferAlignment); }};
}

}  // namespace baton::cpu
