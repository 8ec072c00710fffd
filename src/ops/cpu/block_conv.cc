// The two-tap convolution inside a block on the CPU.
#include "ops/block_draft.h"

#include "ops/cpu/backend.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::BlockConvParams;

void run_conv(ops::Context& ctx, const BlockConvParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t d = p.x.cols;
  const int64_t group = d / p.groups;
  const int64_t per_thread = 3 * d + 2 * p.groups;
  BATON_CHECK(p.x.rows % p.block == 0 && d % p.groups == 0 && p.dynamic.cols == 2 * p.groups && p.y.data != p.x.data);
  const int64_t mark = ctx.workspace->mark();
  float* scratch = ctx.workspace->array<float>(ctx.executor->pool().size() * per_thread);
  ctx.executor->pool().parallel_for(p.x.rows, p.block, [&](int64_t begin, int64_t end, int thread) {
    float* const now = scratch + thread * per_thread;
    float* const before = now + d;
    float* const y = before + d;
    float* const dynamic = y + d;
    for (int64_t r = begin; r < end; ++r) {
      kernels.widen(p.x.row_bytes(r), p.x.dtype, now, d);
      if (r % p.block == 0)
        std::fill_n(before, d, 0.0F);
      else
        kernels.widen(p.x.row_bytes(r - 1), p.x.dtype, before, d);
      kernels.widen(p.dynamic.row_bytes(r), p.dynamic.dtype, dynamic, 2 * p.groups);
      for (int64_t g = 0; g < p.groups; ++g) {
        const float tap0 = dynamic[g];
        const float tap1 = dynamic[p.groups + g];
        for (int64_t c = g * group; c < (g + 1) * group; ++c) y[c] = (p.base[c] + tap0) * now[c] + (p.base[d + c] + tap1) * before[c];
      }
      write_row(kernels, y, p.y, r, 0, d);
    }
  });
  ctx.workspace->release(mark);
}

}  // namespace

void register_block_conv(ops::OpTable& table) {
  table.block_conv = {run_conv,
                      [](const BlockConvParams& p) {
                        return is_float_type(p.x.dtype) && is_float_type(p.dynamic.dtype) && is_float_type(p.y.dtype) && p.groups > 0 &&
                               p.x.cols % p.groups == 0;
                      },
                      [](const ops::Executor& e, const BlockConvParams& p) {
                        return align_up(e.pool().size() * (3 * p.x.cols + 2 * p.groups) * 4, kBufferAlignment);
                      }};
}

}  // namespace baton::cpu
