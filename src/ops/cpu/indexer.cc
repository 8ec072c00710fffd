// The indexer on the CPU: keys and pooled rows, and the exact choice of the best pools.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ops/cpu/backend.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::IndexerKeysParams;
using ops::IndexerLayout;
using ops::IndexerSelectParams;
using ops::kPageTokens;

struct PooledRow {
  std::byte* values;
  std::byte* scale;  // FP8 only
};

PooledRow pooled_row(const IndexerLayout& layout, std::byte* page, int64_t row) {
  std::byte* base = page + layout.page_offset;
  const int64_t rows = kPageTokens / layout.pool;
  return {base + row * layout.dim * dtype_bytes(layout.dtype), base + rows * layout.dim + row * 4};
}

bool transforms(const IndexerLayout& layout) {
  return layout.dtype == DType::kF8E4M3 && std::has_single_bit(static_cast<uint64_t>(layout.dim));
}

void write_pooled(const RowKernels& kernels, const IndexerLayout& layout, float* x, PooledRow to) {
  if (layout.dtype != DType::kF8E4M3) return kernels.narrow(x, to.values, layout.dtype, layout.dim);
  if (transforms(layout)) kernels.hadamard(x, layout.dim);
  const float scale = power_of_two_scale(kernels.max_abs(x, layout.dim));
  for (int64_t c = 0; c < layout.dim; ++c) to.values[c] = std::byte{to_e4m3(x[c] / scale).bits};
  std::memcpy(to.scale, &scale, 4);
}

void read_pooled(const RowKernels& kernels, const IndexerLayout& layout, PooledRow from, float* x) {
  if (layout.dtype != DType::kF8E4M3) return kernels.widen(from.values, layout.dtype, x, layout.dim);
  float scale = 0;
  std::memcpy(&scale, from.scale, 4);
  for (int64_t c = 0; c < layout.dim; ++c) x[c] = to_float(e4m3{std::to_integer<uint8_t>(from.values[c])}) * scale;
}

std::byte* ring_entry(const IndexerLayout& layout, std::byte* slot, int64_t position) {
  return slot + layout.ring_offset + position % layout.ring_tokens * 2 * layout.dim * dtype_bytes(layout.ring_dtype);
}

std::byte* page_of(const ops::BatchView& batch, const ops::PagePoolView& pages, int64_t sequence, int64_t position) {
  return pages.page(batch.page_tables[sequence * batch.page_table_stride + position / kPageTokens]);
}

// Per thread: one pooled row, the pool's rows that came from the ring, and pointers to all of them.
int64_t keys_scratch_bytes(int64_t threads, int64_t pool, int64_t dim) {
  return threads *
         (align_up(dim * 4, kBufferAlignment) + align_up(pool * 2 * dim * 4, kBufferAlignment) + 2 * align_up(pool * 8, kBufferAlignment));
}

int64_t keys_workspace(const IndexerKeysParams& p) { return align_up(int64_t{p.batch.row_count} * 2 * p.layout.dim * 4, kBufferAlignment); }

void run_keys(ops::Context& ctx, const IndexerKeysParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const IndexerLayout& layout = p.layout;
  const int64_t dim = layout.dim;
  const int64_t mark = ctx.workspace->mark();
  // Key and gamma of every row, rounded as the ring stores them: a pool does not depend on which of its tokens came from the ring.
  float* rows = ctx.workspace->array<float>(int64_t{p.batch.row_count} * 2 * dim);
  ThreadPool& pool = ctx.executor->pool();
  pool.parallel_for(p.batch.row_count, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* key = rows + r * 2 * dim;
      float* gamma = key + dim;
      kernels.widen(p.key.row_bytes(r), p.key.dtype, key, dim);
      kernels.layer_norm(key, p.norm_weight, p.norm_bias, p.norm_eps, key, dim);
      kernels.widen(p.gamma.row_bytes(r), p.gamma.dtype, gamma, dim);
      if (layout.ring_dtype == DType::kBF16)
        for (int64_t c = 0; c < 2 * dim; ++c) key[c] = to_float(to_bf16(key[c]));
    }
  });
  // Pools first: they may read ring entries that this launch's own rows overwrite below.
  std::byte* scratch = ctx.workspace->array<std::byte>(keys_scratch_bytes(ctx.executor->pool().size(), layout.pool, dim));
  const int64_t thread_bytes = keys_scratch_bytes(1, layout.pool, dim);
  pool.parallel_for(p.batch.row_count, 16, [&](int64_t begin, int64_t end, int thread) {
    Arena arena(scratch + thread * thread_bytes, thread_bytes);
    float* pooled = arena.array<float>(dim);
    float* old = arena.array<float>(layout.pool * 2 * dim);
    const float** key = arena.array<const float*>(layout.pool);
    const float** gamma = arena.array<const float*>(layout.pool);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t position = p.batch.positions[r];
      if ((position + 1) % layout.pool != 0) continue;
      const int64_t q = p.batch.row_sequence[r];
      const ops::SequenceRows& sequence = p.batch.sequences[q];
      for (int64_t s = 0; s < layout.pool; ++s) {
        const int64_t token = position + 1 - layout.pool + s;
        if (token >= sequence.position) {
          key[s] = rows + (sequence.row_begin + token - sequence.position) * 2 * dim;
        } else {
          kernels.widen(ring_entry(layout, p.slots.slot(sequence.slot), token), layout.ring_dtype, old + s * 2 * dim, 2 * dim);
          key[s] = old + s * 2 * dim;
        }
        gamma[s] = key[s] + dim;
      }
      kernels.pool_keys(key, gamma, p.ape, layout.pool, dim, pooled);
      write_pooled(kernels, layout, pooled,
                   pooled_row(layout, page_of(p.batch, p.pages, q, position), position % kPageTokens / layout.pool));
    }
  });
  for (int64_t q = 0; q < p.batch.sequence_count; ++q) {
    const ops::SequenceRows& sequence = p.batch.sequences[q];
    for (int64_t i = std::max(0, sequence.row_count - layout.ring_tokens); i < sequence.row_count; ++i) {
      std::byte* entry = ring_entry(layout, p.slots.slot(sequence.slot), sequence.position + i);
      kernels.narrow(rows + (sequence.row_begin + i) * 2 * dim, entry, layout.ring_dtype, 2 * dim);
    }
  }
  ctx.workspace->release(mark);
}

struct SelectScratch {
  float* q;
  float* weights;
  float* keys;    // [64 / pool, dim]
  float* scores;  // [capacity of the page table in pools]
  int32_t* order;

  SelectScratch(Arena& arena, const IndexerSelectParams& p)
      : q(arena.array<float>(p.heads * p.layout.dim)), weights(arena.array<float>(p.heads)),
        keys(arena.array<float>(kPageTokens / p.layout.pool * p.layout.dim)), scores(arena.array<float>(max_pools(p))),
        order(arena.array<int32_t>(max_pools(p))) {}
  static int64_t max_pools(const IndexerSelectParams& p) { return int64_t{p.batch.page_table_stride} * kPageTokens / p.layout.pool; }
  static int64_t bytes(const IndexerSelectParams& p) {
    Arena plan;
    SelectScratch(plan, p);
    return plan.peak();
  }
};

// An e4m3 query per head with its own power-of-two scale, as the GPU path scores it; the scale returns through the values.
void round_query(const RowKernels& kernels, const IndexerLayout& layout, int64_t heads, float* q) {
  for (int64_t h = 0; h < heads; ++h) {
    float* x = q + h * layout.dim;
    if (transforms(layout)) kernels.hadamard(x, layout.dim);
    const float scale = power_of_two_scale(kernels.max_abs(x, layout.dim));
    for (int64_t c = 0; c < layout.dim; ++c) x[c] = to_float(to_e4m3(x[c] / scale)) * scale;
  }
}

void select_row(const RowKernels& kernels, const IndexerSelectParams& p, SelectScratch& s, int64_t r) {
  const IndexerLayout& layout = p.layout;
  const int64_t position = p.batch.positions[r];
  const int32_t closed = static_cast<int32_t>((position + 1) / layout.pool);
  const int32_t capacity = p.selection.pool_capacity;
  int32_t* chosen = p.selection.pools + r * capacity;
  p.selection.tail_begin[r] = closed * layout.pool;
  p.selection.counts[r] = std::min(closed, capacity);
  if (closed <= capacity) {
    for (int32_t i = 0; i < closed; ++i) chosen[i] = i;
    return;
  }
  kernels.widen(p.q.row_bytes(r), p.q.dtype, s.q, p.heads * layout.dim);
  if (layout.dtype == DType::kF8E4M3) round_query(kernels, layout, p.heads, s.q);
  const float factor = 1.0F / std::sqrt(static_cast<float>(layout.dim * p.heads));
  for (int64_t h = 0; h < p.heads; ++h) s.weights[h] = p.weights.row<float>(r)[h] * factor;
  const int32_t per_page = kPageTokens / layout.pool;
  for (int32_t first = 0; first < closed; first += per_page) {
    std::byte* page = page_of(p.batch, p.pages, p.batch.row_sequence[r], int64_t{first} * layout.pool);
    const int32_t count = std::min(per_page, closed - first);
    for (int32_t i = 0; i < count; ++i) read_pooled(kernels, layout, pooled_row(layout, page, i), s.keys + i * layout.dim);
    kernels.index_scores(s.q, s.weights, p.heads, s.keys, count, layout.dim, s.scores + first);
  }
  for (int32_t i = 0; i < closed; ++i) {
    s.order[i] = i;
    if (std::isnan(s.scores[i])) s.scores[i] = -std::numeric_limits<float>::infinity();
  }
  const auto better = [&](int32_t a, int32_t b) { return s.scores[a] != s.scores[b] ? s.scores[a] > s.scores[b] : a < b; };
  std::nth_element(s.order, s.order + capacity, s.order + closed, better);
  std::copy_n(s.order, capacity, chosen);
  std::sort(chosen, chosen + capacity);
}

void run_select(ops::Context& ctx, const IndexerSelectParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t mark = ctx.workspace->mark();
  const int64_t bytes = SelectScratch::bytes(p);
  std::byte* scratch = ctx.workspace->array<std::byte>(ctx.executor->pool().size() * bytes);
  ctx.executor->pool().parallel_for(p.batch.row_count, 1, [&](int64_t begin, int64_t end, int thread) {
    Arena arena(scratch + thread * bytes, bytes);
    SelectScratch s(arena, p);
    for (int64_t r = begin; r < end; ++r) select_row(kernels, p, s, r);
  });
  ctx.workspace->release(mark);
}

}  // namespace

void register_indexer(ops::OpTable& table) {
  table.indexer_keys = {run_keys, [](const IndexerKeysParams& p) { return is_float_type(p.key.dtype) && is_float_type(p.gamma.dtype); },
                        [](const ops::Executor& e, const IndexerKeysParams& p) {
                          return keys_workspace(p) + keys_scratch_bytes(e.pool().size(), p.layout.pool, p.layout.dim) + kBufferAlignment;
                        }};
  table.indexer_select = {
      run_select, [](const IndexerSelectParams& p) { return is_float_type(p.q.dtype) && p.weights.dtype == DType::kF32; },
      [](const ops::Executor& e, const IndexerSelectParams& p) { return e.pool().size() * SelectScratch::bytes(p) + kBufferAlignment; }};
}

}  // namespace baton::cpu
