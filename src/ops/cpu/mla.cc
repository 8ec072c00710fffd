// Sparse latent attention on the CPU: absorbed (the product path) and expanded (the definition).
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/backend.h"
#include "ops/cpu/latent.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::kPageTokens;
using ops::MlaAttendExpandedParams;
using ops::MlaAttendParams;

// Heads are dealt out in groups of this size, so that one head runs through the same code however many threads there are.
constexpr int64_t kHeadGroup = 4;
constexpr int64_t kBlockTokens = 64;

// The positions that a row attends to, ascending: the tokens of its pools, then the tail.
class SelectedTokens {
 public:
  template <class Params>
  SelectedTokens(const Params& p, int64_t r)
      : pools_(p.selection.pools + r * p.selection.pool_capacity), pooled_(int64_t{p.selection.counts[r]} * p.pool), pool_(p.pool),
        tail_begin_(p.selection.tail_begin[r]), count_(pooled_ + p.batch.positions[r] + 1 - tail_begin_) {}

  int64_t count() const { return count_; }
  int64_t operator[](int64_t i) const { return i < pooled_ ? int64_t{pools_[i / pool_]} * pool_ + i % pool_ : tail_begin_ + i - pooled_; }

 private:
  const int32_t* pools_;
  int64_t pooled_;
  int64_t pool_;
  int64_t tail_begin_;
  int64_t count_;
};

template <class Params>
const std::byte* latent_row(const Params& p, int64_t r, int64_t position) {
  const int64_t entry = int64_t{p.batch.row_sequence[r]} * p.batch.page_table_stride + position / kPageTokens;
  return p.pages.page(p.batch.page_tables[entry]) + p.layout.page_offset + position % kPageTokens * p.layout.row_bytes;
}

struct AttendScratch {
  float* q;       // [heads, dim]
  float* out;     // [heads, dim]
  float* rows;    // [kBlockTokens, dim]
  float* scores;  // [heads, kBlockTokens]
  float* max;
  float* sum;

  AttendScratch(Arena& arena, int64_t heads, int64_t dim)
      : q(arena.array<float>(heads * dim)), out(arena.array<float>(heads * dim)), rows(arena.array<float>(kBlockTokens * dim)),
        scores(arena.array<float>(heads * kBlockTokens)), max(arena.array<float>(heads)), sum(arena.array<float>(heads)) {}
  static int64_t bytes(int64_t heads, int64_t dim) {
    Arena plan;
    AttendScratch(plan, heads, dim);
    return plan.peak();
  }
};

void attend_row(const RowKernels& kernels, const MlaAttendParams& p, AttendScratch& s, int64_t r, int64_t h0, int64_t h1) {
  const int64_t dim = p.layout.dim;
  const int64_t heads = h1 - h0;
  kernels.widen(p.q.row_bytes(r) + h0 * dim * dtype_bytes(p.q.dtype), p.q.dtype, s.q, heads * dim);
  std::fill_n(s.max, heads, -std::numeric_limits<float>::infinity());
  std::fill_n(s.sum, heads, 0.0F);
  std::fill_n(s.out, heads * dim, 0.0F);
  const SelectedTokens tokens(p, r);
  for (int64_t first = 0; first < tokens.count(); first += kBlockTokens) {
    const int64_t count = std::min(kBlockTokens, tokens.count() - first);
    for (int64_t i = 0; i < count; ++i) read_latent(kernels, p.layout, latent_row(p, r, tokens[first + i]), s.rows + i * dim);
    kernels.attend_block(s.q, s.rows, count, heads, dim, p.scale, s.max, s.sum, s.out, s.scores);
  }
  for (int64_t h = 0; h < heads; ++h) {
    float* o = s.out + h * dim;
    const float norm = 1.0F / s.sum[h];
    for (int64_t i = 0; i < dim; ++i) o[i] *= norm;
  }
  write_row(kernels, s.out, p.out, r, h0 * dim, heads * dim);
}

void run_attend(ops::Context& ctx, const MlaAttendParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  ThreadPool& pool = ctx.executor->pool();
  const int64_t dim = p.layout.dim;
  const int64_t bytes = AttendScratch::bytes(p.heads, dim);
  const int64_t mark = ctx.workspace->mark();
  std::byte* scratch = ctx.workspace->array<std::byte>(pool.size() * bytes);
  // Few rows: heads are split too.
  const int64_t groups = (p.heads + kHeadGroup - 1) / kHeadGroup;
  const int64_t parts = p.batch.row_count >= 4 * pool.size() ? 1 : std::min<int64_t>(groups, pool.size());
  pool.parallel_for(int64_t{p.batch.row_count} * parts, 1, [&](int64_t begin, int64_t end, int thread) {
    Arena arena(scratch + thread * bytes, bytes);
    AttendScratch s(arena, p.heads, dim);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item % parts;
      const int64_t h0 = groups * part / parts * kHeadGroup;
      const int64_t h1 = std::min(p.heads, groups * (part + 1) / parts * kHeadGroup);
      attend_row(kernels, p, s, item / parts, h0, h1);
    }
  });
  ctx.workspace->release(mark);
}

// Scratch of the expanded form, one row at a time: keys and values of all its tokens.
int64_t expanded_tokens(const MlaAttendExpandedParams& p) {
  return int64_t{p.selection.pool_capacity} * p.pool + int64_t{p.batch.page_table_stride} * kPageTokens;
}

struct ExpandedScratch {
  MatrixView latents;  // [tokens, dim]
  MatrixView key;      // [tokens, qk_dim]
  MatrixView value;    // [tokens, v_dim]
  float* q;
  float* scores;
  float* out;

  ExpandedScratch(Arena& arena, const MlaAttendExpandedParams& p)
      : latents(arena.matrix(DType::kF32, expanded_tokens(p), p.layout.dim)),
        key(arena.matrix(DType::kF32, expanded_tokens(p), p.key[0].n)), value(arena.matrix(DType::kF32, expanded_tokens(p), p.value[0].n)),
        q(arena.array<float>(p.key[0].n)), scores(arena.array<float>(expanded_tokens(p))), out(arena.array<float>(p.value[0].n)) {}
};

void expanded_head(ops::Context& ctx, const MlaAttendExpandedParams& p, ExpandedScratch& s, int64_t r, int64_t h, int64_t tokens) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t qk = p.key[h].n;
  const int64_t vd = p.value[h].n;
  const ops::GemmOutput products[2] = {{p.key[h], s.key.row_range(0, tokens)}, {p.value[h], s.value.row_range(0, tokens)}};
  ctx.executor->table().gemm.run(ctx, {.x = s.latents.row_range(0, tokens), .outputs = products});
  kernels.widen(p.q.row_bytes(r) + h * qk * dtype_bytes(p.q.dtype), p.q.dtype, s.q, qk);
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t t = 0; t < tokens; ++t) {
    float z = 0;
    for (int64_t i = 0; i < qk; ++i) z += s.q[i] * s.key.row<float>(t)[i];
    s.scores[t] = z * p.scale;
    top = std::max(top, s.scores[t]);
  }
  float norm = 0;
  for (int64_t t = 0; t < tokens; ++t) norm += s.scores[t] = std::exp(s.scores[t] - top);
  std::fill_n(s.out, vd, 0.0F);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < vd; ++i) s.out[i] += s.scores[t] / norm * s.value.row<float>(t)[i];
  write_row(kernels, s.out, p.out, r, h * vd, vd);
}

void run_attend_expanded(ops::Context& ctx, const MlaAttendExpandedParams& p) {
  const int64_t mark = ctx.workspace->mark();
  ExpandedScratch s(*ctx.workspace, p);
  for (int64_t r = 0; r < p.batch.row_count; ++r) {
    const SelectedTokens tokens(p, r);
    for (int64_t t = 0; t < tokens.count(); ++t)
      read_latent(ctx.executor->rows(), p.layout, latent_row(p, r, tokens[t]), s.latents.row<float>(t));
    for (int64_t h = 0; h < p.heads; ++h) expanded_head(ctx, p, s, r, h, tokens.count());
  }
  ctx.workspace->release(mark);
}

}  // namespace

void register_attention(ops::OpTable& table) {
  table.mla_attend = {run_attend, [](const MlaAttendParams& p) { return is_float_type(p.q.dtype) && is_float_type(p.out.dtype); },
                      [](const ops::Executor& e, const MlaAttendParams& p) {
                        return e.pool().size() * AttendScratch::bytes(p.heads, p.layout.dim) + kBufferAlignment;
                      }};
  table.mla_attend_expanded = {run_attend_expanded,
                               [](const MlaAttendExpandedParams& p) { return is_float_type(p.q.dtype) && is_float_type(p.out.dtype); },
                               [](const ops::Executor& e, const MlaAttendExpandedParams& p) {
                                 Arena plan;
                                 const ExpandedScratch s(plan, p);
                                 const ops::GemmOutput products[2] = {{p.key[0], s.key}, {p.value[0], s.value}};
                                 return plan.peak() + e.table().gemm.workspace_bytes(e, {.x = s.latents, .outputs = products});
                               }};
}

}  // namespace baton::cpu
