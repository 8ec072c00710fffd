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

// Rows that walk their blocks together. Neighbouring rows of a prompt attend to mostly the same tokens, whose rows are then read once.
constexpr int64_t kRowGroup = 8;

// What one row accumulates over its blocks.
struct RowState {
  float* q;    // [heads, dim]
  float* out;  // [heads, dim]
  float* max;  // [heads]
  float* sum;  // [heads]
};

struct AttendScratch {
  RowState rows[kRowGroup];
  float* latents;  // [kBlockTokens, dim]
  float* scores;   // [heads, kBlockTokens]

  AttendScratch(Arena& arena, int64_t heads, int64_t dim)
      : latents(arena.array<float>(kBlockTokens * dim)), scores(arena.array<float>(heads * kBlockTokens)) {
    for (RowState& row : rows)
      row = {arena.array<float>(heads * dim), arena.array<float>(heads * dim), arena.array<float>(heads), arena.array<float>(heads)};
  }
  static int64_t bytes(int64_t heads, int64_t dim) {
    Arena plan;
    AttendScratch(plan, heads, dim);
    return plan.peak();
  }
};

// Heads [h0, h1) of consecutive rows of one sequence.
class RowGroup {
 public:
  RowGroup(const RowKernels& kernels, const MlaAttendParams& p, AttendScratch& s, int64_t first_row, int64_t rows, int64_t h0, int64_t h1)
      : kernels_(kernels), p_(p), s_(s), first_row_(first_row), rows_(rows), h0_(h0), heads_(h1 - h0), dim_(p.layout.dim) {}

  void run() {
    for (int64_t i = 0; i < rows_; ++i) begin(i);
    // Blocks that hold the same tokens for all rows: those that are full, of rows that attend to everything before them.
    int64_t shared = std::numeric_limits<int64_t>::max();
    for (int64_t i = 0; i < rows_; ++i) shared = std::min(shared, dense_tokens(first_row_ + i) / kBlockTokens * kBlockTokens);
    if (rows_ == 1) shared = 0;
    const SelectedTokens first(p_, first_row_);
    for (int64_t t = 0; t < shared; t += kBlockTokens) {
      read(first_row_, first, t, kBlockTokens);
      for (int64_t i = 0; i < rows_; ++i) attend(i, kBlockTokens);
    }
    for (int64_t i = 0; i < rows_; ++i) {
      const SelectedTokens tokens(p_, first_row_ + i);
      for (int64_t t = shared; t < tokens.count(); t += kBlockTokens) {
        const int64_t count = std::min(kBlockTokens, tokens.count() - t);
        read(first_row_ + i, tokens, t, count);
        attend(i, count);
      }
      end(i);
    }
  }

 private:
  RowState& state(int64_t i) { return s_.rows[i]; }

  void begin(int64_t i) {
    const std::byte* q = p_.q.row_bytes(first_row_ + i) + h0_ * dim_ * dtype_bytes(p_.q.dtype);
    kernels_.widen(q, p_.q.dtype, state(i).q, heads_ * dim_);
    std::fill_n(state(i).max, heads_, -std::numeric_limits<float>::infinity());
    std::fill_n(state(i).sum, heads_, 0.0F);
    std::fill_n(state(i).out, heads_ * dim_, 0.0F);
  }
  // Tokens 0 ... n - 1 if the row attends to all of them without a gap, else 0.
  int64_t dense_tokens(int64_t r) const {
    return int64_t{p_.selection.counts[r]} * p_.pool == p_.selection.tail_begin[r] ? p_.batch.positions[r] + 1 : 0;
  }
  void read(int64_t r, const SelectedTokens& tokens, int64_t first, int64_t count) {
    for (int64_t j = 0; j < count; ++j) read_latent(kernels_, p_.layout, latent_row(p_, r, tokens[first + j]), s_.latents + j * dim_);
  }
  void attend(int64_t i, int64_t count) {
    kernels_.attend_block(state(i).q, s_.latents, s_.latents, count, heads_, dim_, p_.scale, state(i).max, state(i).sum, state(i).out,
                          s_.scores);
  }
  void end(int64_t i) {
    for (int64_t h = 0; h < heads_; ++h) {
      float* o = state(i).out + h * dim_;
      const float norm = 1.0F / state(i).sum[h];
      for (int64_t j = 0; j < dim_; ++j) o[j] *= norm;
    }
    write_row(kernels_, state(i).out, p_.out, first_row_ + i, h0_ * dim_, heads_ * dim_);
  }

  const RowKernels& kernels_;
  const MlaAttendParams& p_;
  AttendScratch& s_;
  int64_t first_row_;
  int64_t rows_;
  int64_t h0_;
  int64_t heads_;
  int64_t dim_;
};

void run_attend(ops::Context& ctx, const MlaAttendParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  ThreadPool& pool = ctx.executor->pool();
  const int64_t dim = p.layout.dim;
  const int64_t bytes = AttendScratch::bytes(p.heads, dim);
  const int64_t mark = ctx.workspace->mark();
  std::byte* scratch = ctx.workspace->array<std::byte>(pool.size() * bytes);
  // Few rows: heads are split too, and rows go alone.
  const int64_t groups = (p.heads + kHeadGroup - 1) / kHeadGroup;
  const bool many = p.batch.row_count >= 2 * kRowGroup * pool.size();
  const int64_t parts = many ? 1 : std::min<int64_t>(groups, pool.size());
  const int64_t step = many ? kRowGroup : 1;
  const int64_t items = (p.batch.row_count + step - 1) / step * parts;
  pool.parallel_for(items, 1, [&](int64_t begin, int64_t end, int thread) {
    Arena arena(scratch + thread * bytes, bytes);
    AttendScratch s(arena, p.heads, dim);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item % parts;
      const int64_t h0 = groups * part / parts * kHeadGroup;
      const int64_t h1 = std::min(p.heads, groups * (part + 1) / parts * kHeadGroup);
      const int64_t last = std::min<int64_t>(p.batch.row_count, (item / parts + 1) * step);
      for (int64_t r = item / parts * step; r < last;) {
        int64_t next = r + 1;
        while (next < last && p.batch.row_sequence[next] == p.batch.row_sequence[r]) ++next;
        RowGroup(kernels, p, s, r, next - r, h0, h1).run();
        r = next;
      }
    }
  });
  ctx.workspace->release(mark);
}

// Scratch of the expanded form, one row at a time: keys and values of all its tokens, which are distinct positions of its pages.
int64_t expanded_tokens(const MlaAttendExpandedParams& p) { return int64_t{p.batch.page_table_stride} * kPageTokens; }

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
