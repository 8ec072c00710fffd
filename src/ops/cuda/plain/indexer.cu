// The indexer: keys and pooled rows, scores, and the exact choice among them. A block a row.
#include <bit>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/plain/block.cuh"
#include "ops/cuda/plain/element.cuh"
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/register.h"

namespace baton::cuda::plain {
namespace {

__device__ int64_t bytes_of(DType t) { return t == DType::kF32 ? 4 : t == DType::kBF16 ? 2 : 1; }

struct KeysArgs {
  ops::BatchView batch;
  ConstRows key, gamma;
  const float* norm_weight;
  const float* norm_bias;
  float norm_eps;
  const float* ape;
  std::byte* pages;  // first page, at the layer's pooled rows
  int64_t page_stride;
  std::byte* slots;  // first slot, at the layer's ring
  int64_t slot_stride;
  ops::IndexerLayout layout;
  bool transforms;  // Hadamard before rounding to e4m3
  float* rows;      // [m, 2, dim]: key and gamma of every row, rounded as the ring stores them

  __device__ int dim() const { return static_cast<int>(layout.dim); }
  __device__ std::byte* entry(int32_t slot, int64_t position) const {
    return slots + slot * slot_stride + position % layout.ring_tokens * 2 * layout.dim * bytes_of(layout.ring_dtype);
  }
};

__global__ void __launch_bounds__(kThreads) norm_keys(KeysArgs p) {
  auto* scratch = shared_floats();
  const int64_t r = blockIdx.x;
  const int dim = p.dim();
  float* key = p.rows + r * 2 * dim;
  float sum = 0;
  for (int c = thread(); c < dim; c += kThreads) sum += p.key.at(r, c);
  const float mean = block_sum(sum, scratch) / static_cast<float>(dim);
  float squares = 0;
  for (int c = thread(); c < dim; c += kThreads) {
    const float x = p.key.at(r, c) - mean;
    squares += x * x;
  }
  const float factor = 1.0F / sqrtf(block_sum(squares, scratch) / static_cast<float>(dim) + p.norm_eps);
  for (int c = thread(); c < dim; c += kThreads) {
    key[c] = rounded((p.key.at(r, c) - mean) * factor * p.norm_weight[c] + p.norm_bias[c], p.layout.ring_dtype);
    key[dim + c] = rounded(p.gamma.at(r, c), p.layout.ring_dtype);
  }
}

// Before write_ring: pools may read entries that the launch's own rows overwrite.
__global__ void __launch_bounds__(kThreads) close_pools(KeysArgs p) {
  auto* scratch = shared_floats();
  float* pooled = scratch + kScratch;
  const int64_t r = blockIdx.x;
  const int64_t position = p.batch.positions[r];
  const int pool = p.layout.pool;
  if ((position + 1) % pool != 0) return;
  const int32_t q = p.batch.row_sequence[r];
  const ops::SequenceRows sequence = p.batch.sequences[q];
  const int dim = p.dim();
  const int64_t first = position + 1 - pool;
  const auto value = [&](int s, int which, int c) {  // which: 0 key, 1 gamma
    const int64_t token = first + s;
    if (token >= sequence.position) return p.rows[((sequence.row_begin + token - sequence.position) * 2 + which) * dim + c];
    return load(p.entry(sequence.slot, token), p.layout.ring_dtype, which * dim + c);
  };
  for (int c = thread(); c < dim; c += kThreads) {
    float top = -infinity();
    for (int s = 0; s < pool; ++s) top = fmaxf(top, value(s, 1, c) + p.ape[s * dim + c]);
    float norm = 0;
    float sum = 0;
    for (int s = 0; s < pool; ++s) {
      const float e = expf(value(s, 1, c) + p.ape[s * dim + c] - top);
      norm += e;
      sum += e * value(s, 0, c);
    }
    pooled[c] = sum / norm;
  }
  const int32_t page = p.batch.page_tables[int64_t{q} * p.batch.page_table_stride + position / ops::kPageTokens];
  std::byte* base = p.pages + page * p.page_stride;
  const int64_t row = position % ops::kPageTokens / pool;
  std::byte* to = base + row * dim * bytes_of(p.layout.dtype);
  if (p.layout.dtype != DType::kF8E4M3) {
    for (int c = thread(); c < dim; c += kThreads) store(to, p.layout.dtype, c, pooled[c]);
    return;
  }
  if (p.transforms) hadamard(pooled, dim, dim);
  float top = 0;
  for (int c = thread(); c < dim; c += kThreads) top = fmaxf(top, fabsf(pooled[c]));
  const float scale = power_of_two_scale(block_max(top, scratch));
  for (int c = thread(); c < dim; c += kThreads) store(to, DType::kF8E4M3, c, pooled[c] / scale);
  if (thread() == 0) reinterpret_cast<float*>(base + ops::kPageTokens / pool * dim)[row] = scale;
}

__global__ void __launch_bounds__(kThreads) write_ring(KeysArgs p) {
  const int64_t r = blockIdx.x;
  const ops::SequenceRows sequence = p.batch.sequences[p.batch.row_sequence[r]];
  const int64_t i = r - sequence.row_begin;
  if (i < sequence.row_count - p.layout.ring_tokens) return;  // a later row takes its place
  std::byte* to = p.entry(sequence.slot, sequence.position + i);
  const int dim = p.dim();
  for (int c = thread(); c < 2 * dim; c += kThreads) store(to, p.layout.ring_dtype, c, p.rows[r * 2 * dim + c]);
}

struct SelectArgs {
  ops::BatchView batch;
  ConstRows q, weights;
  int32_t heads;
  const std::byte* pages;
  int64_t page_stride;
  ops::IndexerLayout layout;
  bool transforms;
  ops::Selection selection;
  float* scores;  // [m, score_stride]
  int64_t score_stride;
};

inline constexpr int kMostParts = 16;  // 32nds of a key: at most 512 wide

__global__ void __launch_bounds__(kThreads) select_pools(SelectArgs p) {
  auto* scratch = shared_floats();
  float* weights = scratch + kScratch;
  float* q = weights + p.heads;
  const int64_t r = blockIdx.x;
  const int pool = p.layout.pool;
  const int dim = static_cast<int>(p.layout.dim);
  const int closed = (p.batch.positions[r] + 1) / pool;
  const int capacity = p.selection.pool_capacity;
  int32_t* chosen = p.selection.pools + r * capacity;
  if (thread() == 0) {
    p.selection.tail_begin[r] = closed * pool;
    p.selection.counts[r] = closed < capacity ? closed : capacity;
  }
  if (closed <= capacity) {
    for (int i = thread(); i < closed; i += kThreads) chosen[i] = i;
    return;
  }

  const float factor = 1.0F / sqrtf(static_cast<float>(dim) * static_cast<float>(p.heads));
  for (int h = thread(); h < p.heads; h += kThreads) weights[h] = p.weights.at(r, h) * factor;
  for (int i = thread(); i < p.heads * dim; i += kThreads) q[i] = p.q.at(r, i);
  __syncthreads();
  if (p.layout.dtype == DType::kF8E4M3) {
    if (p.transforms) hadamard(q, p.heads * dim, dim);
    for (int h = warp(); h < p.heads; h += kWarps) {
      float top = 0;
      for (int c = lane(); c < dim; c += 32) top = fmaxf(top, fabsf(q[h * dim + c]));
      const float scale = power_of_two_scale(lanes_max<1, 16>(top));
      for (int c = lane(); c < dim; c += 32) q[h * dim + c] = from_e4m3(to_e4m3_bits(q[h * dim + c] / scale)) * scale;
    }
    __syncthreads();
  }

  // A warp a pool.
  const int per_page = ops::kPageTokens / pool;
  const int32_t* table = p.batch.page_tables + int64_t{p.batch.row_sequence[r]} * p.batch.page_table_stride;
  float* scores = p.scores + r * p.score_stride;
  for (int i = warp(); i < closed; i += kWarps) {
    const std::byte* base = p.pages + table[i / per_page] * p.page_stride;
    const std::byte* row = base + i % per_page * dim * bytes_of(p.layout.dtype);
    const float scale = p.layout.dtype == DType::kF8E4M3 ? reinterpret_cast<const float*>(base + per_page * dim)[i % per_page] : 1.0F;
    float key[kMostParts];
#pragma unroll
    for (int j = 0; j < kMostParts; ++j) {
      const int c = j * 32 + lane();
      key[j] = c < dim ? load(row, p.layout.dtype, c) * scale : 0.0F;
    }
    float score = 0;
    for (int h = 0; h < p.heads; ++h) {
      float dot = 0;
#pragma unroll
      for (int j = 0; j < kMostParts; ++j) {
        const int c = j * 32 + lane();
        if (c < dim) dot += q[h * dim + c] * key[j];
      }
      dot = warp_sum(dot);
      score += weights[h] * (dot > 0 ? dot : 0.0F);
    }
    if (lane() == 0) scores[i] = score == score ? score : -infinity();
  }
  __syncthreads();

  const auto reach = [&](uint32_t key) {
    int n = 0;
    for (int i = thread(); i < closed; i += kThreads) n += order_key(scores[i]) >= key ? 1 : 0;
    return block_count(n, scratch);
  };
  const uint32_t bound = largest_key(0, [&](uint32_t key) { return reach(key) >= capacity; });
  const int above = bound == 0xFFFFFFFFU ? 0 : reach(bound + 1);
  if (warp() != 0) return;
  int taken = 0;
  int equal = 0;
  for (int first = 0; first < closed; first += 32) {
    const int i = first + lane();
    const uint32_t key = i < closed ? order_key(scores[i]) : 0;
    const uint32_t equals = __ballot_sync(0xFFFFFFFFU, i < closed && key == bound);
    const uint32_t before = (1U << lane()) - 1U;
    const bool take = i < closed && (key > bound || (key == bound && equal + __popc(equals & before) < capacity - above));
    const uint32_t takes = __ballot_sync(0xFFFFFFFFU, take);
    if (take) chosen[taken + __popc(takes & before)] = i;
    taken += __popc(takes);
    equal += __popc(equals);
  }
}

bool transforms(const ops::IndexerLayout& layout) {
  return layout.dtype == DType::kF8E4M3 && std::has_single_bit(static_cast<uint64_t>(layout.dim));
}

void run_keys(ops::Context& ctx, const ops::IndexerKeysParams& p) {
  if (p.batch.row_count == 0) return;
  const int64_t mark = ctx.workspace->mark();
  KeysArgs a{};
  a.batch = p.batch;
  a.key = rows_of(p.key);
  a.gamma = rows_of(p.gamma);
  a.norm_weight = p.norm_weight;
  a.norm_bias = p.norm_bias;
  a.norm_eps = p.norm_eps;
  a.ape = p.ape;
  a.pages = p.pages.base + p.layout.page_offset;
  a.page_stride = p.pages.stride;
  a.slots = p.slots.base + p.layout.ring_offset;
  a.slot_stride = p.slots.stride;
  a.layout = p.layout;
  a.transforms = transforms(p.layout);
  a.rows = ctx.workspace->array<float>(int64_t{p.batch.row_count} * 2 * p.layout.dim);
  const size_t shared = static_cast<size_t>(kScratch + p.layout.dim) * sizeof(float);
  const unsigned blocks = blocks_of(p.batch.row_count);
  cudaError_t e = launch(norm_keys, blocks, kThreads, shared, 1, false, stream(ctx), a);
  if (e == cudaSuccess) e = launch(close_pools, blocks, kThreads, shared, 1, false, stream(ctx), a);
  if (e == cudaSuccess) e = launch(write_ring, blocks, kThreads, 0, 1, false, stream(ctx), a);
  ctx.workspace->release(mark);
  launched(ctx, e, "indexer_keys");
}

int64_t score_stride(const ops::IndexerSelectParams& p) { return int64_t{p.batch.page_table_stride} * ops::kPageTokens / p.layout.pool; }

void run_select(ops::Context& ctx, const ops::IndexerSelectParams& p) {
  if (p.batch.row_count == 0) return;
  const int64_t mark = ctx.workspace->mark();
  SelectArgs a{};
  a.batch = p.batch;
  a.q = rows_of(p.q);
  a.weights = rows_of(p.weights);
  a.heads = static_cast<int32_t>(p.heads);
  a.pages = p.pages.base + p.layout.page_offset;
  a.page_stride = p.pages.stride;
  a.layout = p.layout;
  a.transforms = transforms(p.layout);
  a.selection = p.selection;
  a.score_stride = score_stride(p);
  a.scores = ctx.workspace->array<float>(p.batch.row_count * a.score_stride);
  const size_t shared = static_cast<size_t>(kScratch + p.heads * (p.layout.dim + 1)) * sizeof(float);
  const cudaError_t e = launch(select_pools, blocks_of(p.batch.row_count), kThreads, shared, 1, false, stream(ctx), a);
  ctx.workspace->release(mark);
  launched(ctx, e, "indexer_select");
}

constexpr int64_t kMostQuery = 11000;  // floats of a row's queries in shared memory that needs no leave

}  // namespace

void register_indexer(ops::OpTable& table) {
  table.indexer_keys = {run_keys,
                        [](const ops::IndexerKeysParams& p) {
                          return is_float(p.key.dtype) && is_float(p.gamma.dtype) && is_float(p.layout.ring_dtype) &&
                                 p.layout.dim <= kMostQuery;
                        },
                        [](const ops::Executor&, const ops::IndexerKeysParams& p) {
                          return align_up(int64_t{p.batch.row_count} * 2 * p.layout.dim * 4, kBufferAlignment);
                        }};
  table.indexer_select = {run_select,
                          [](const ops::IndexerSelectParams& p) {
                            return is_float(p.q.dtype) && p.weights.dtype == DType::kF32 && p.layout.dim <= 32 * kMostParts &&
                                   p.heads * (p.layout.dim + 1) <= kMostQuery;
                          },
                          [](const ops::Executor&, const ops::IndexerSelectParams& p) {
                            return align_up(int64_t{p.batch.row_count} * score_stride(p) * 4, kBufferAlignment);
                          }};
}

}  // namespace baton::cuda::plain
