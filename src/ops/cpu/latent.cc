// Latent rows: written by the sparse layers' key-value path, read by attention.
#include "ops/cpu/latent.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/backend.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"
#include "ops/weight.h"

namespace baton::cpu {
namespace {

using ops::kPageTokens;
using ops::kScaleBlock;
using ops::LatentLayout;
using ops::LatentWriteParams;

void write_latent(const RowKernels& kernels, const LatentLayout& layout, const float* c, std::byte* to) {
  if (layout.dtype != DType::kF8E4M3) return kernels.narrow(c, to, layout.dtype, layout.dim);
  for (int64_t first = 0; first < layout.dim; first += kScaleBlock) {
    const int64_t n = std::min(kScaleBlock, layout.dim - first);
    const float scale = power_of_two_scale(kernels.max_abs(c + first, n));
    for (int64_t i = first; i < first + n; ++i) to[i] = std::byte{to_e4m3(c[i] / scale).bits};
    std::memcpy(to + layout.dim + first / kScaleBlock * 4, &scale, 4);
  }
}

void run_write(ops::Context& ctx, const LatentWriteParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t mark = ctx.workspace->mark();
  const int64_t dim = p.layout.dim;
  float* scratch = ctx.workspace->array<float>(ctx.executor->pool().size() * dim);
  ctx.executor->pool().parallel_for(p.batch.row_count, 16, [&](int64_t begin, int64_t end, int thread) {
    float* c = scratch + thread * dim;
    for (int64_t r = begin; r < end; ++r) {
      kernels.widen(p.x.row_bytes(r), p.x.dtype, c, dim);
      kernels.rms_norm(c, p.weight, p.eps, c, dim);
      const int32_t position = p.batch.positions[r];
      const int32_t page = p.batch.page_tables[int64_t{p.batch.row_sequence[r]} * p.batch.page_table_stride + position / kPageTokens];
      write_latent(kernels, p.layout, c, p.pages.page(page) + p.layout.page_offset + position % kPageTokens * p.layout.row_bytes);
    }
  });
  ctx.workspace->release(mark);
}

}  // namespace

void read_latent(const RowKernels& kernels, const LatentLayout& layout, const std::byte* from, float* c) {
  if (layout.dtype != DType::kF8E4M3) return kernels.widen(from, layout.dtype, c, layout.dim);
  for (int64_t i = 0; i < layout.dim; ++i) {
    float scale = 0;
    std::memcpy(&scale, from + layout.dim + i / kScaleBlock * 4, 4);
    c[i] = to_float(e4m3{std::to_integer<uint8_t>(from[i])}) * scale;
  }
}

void register_latent(ops::OpTable& table) {
  table.latent_write = {
      run_write, [](const LatentWriteParams& p) { return is_float_type(p.x.dtype); },
      [](const ops::Executor& e, const LatentWriteParams& p) { return align_up(e.pool().size() * p.layout.dim * 4, kBufferAlignment); }};
}

}  // namespace baton::cpu
