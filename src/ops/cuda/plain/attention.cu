// Latent rows and attention over them: a block writes one row, or has one head of one row.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/plain/block.cuh"
#include "ops/cuda/plain/element.cuh"
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/product.cuh"
#include "ops/cuda/plain/register.h"
#include "ops/cuda/plain/softmax.cuh"

namespace baton::cuda::plain {
namespace {

struct LatentPages {
  std::byte* base;  // first page, at the layer's rows
  int64_t stride;
  int64_t row_bytes;
  DType type;
  int32_t dim;
  const int32_t* row_sequence;
  const int32_t* positions;
  const int32_t* tables;
  int32_t table_stride;

  __device__ std::byte* at(int64_t r, int position) const {
    const int32_t page = tables[int64_t{row_sequence[r]} * table_stride + position / ops::kPageTokens];
    return base + page * stride + position % ops::kPageTokens * row_bytes;
  }
};

LatentPages latent_pages(const ops::BatchView& batch, const ops::PagePoolView& pages, const ops::LatentLayout& layout) {
  return {pages.base + layout.page_offset,  pages.stride,       layout.row_bytes, layout.dtype,
          static_cast<int32_t>(layout.dim), batch.row_sequence, batch.positions,  batch.page_tables,
          batch.page_table_stride};
}

__device__ float latent(const LatentPages& pages, const std::byte* row, int c) {
  const float x = load(row, pages.type, c);
  return pages.type == DType::kF8E4M3 ? x * reinterpret_cast<const float*>(row + pages.dim)[c / ops::kScaleBlock] : x;
}

struct LatentWriteArgs {
  LatentPages pages;
  ConstRows x;
  const float* weight;
  float eps;
};

__global__ void __launch_bounds__(kThreads) write_latents(LatentWriteArgs p) {
  auto* scratch = shared_floats();
  float* x = scratch + kScratch;
  const int64_t r = blockIdx.x;
  const int dim = p.pages.dim;
  for (int c = thread(); c < dim; c += kThreads) x[c] = p.x.at(r, c);
  const float factor = inverse_rms(x, dim, p.eps, scratch);
  for (int c = thread(); c < dim; c += kThreads) x[c] = x[c] * factor * p.weight[c];
  __syncthreads();
  std::byte* to = p.pages.at(r, p.pages.positions[r]);
  if (p.pages.type != DType::kF8E4M3) {
    for (int c = thread(); c < dim; c += kThreads) store(to, p.pages.type, c, x[c]);
    return;
  }
  for (int group = warp(); group * 128 < dim; group += kWarps) {
    float top = 0;
    for (int c = group * 128 + lane(); c < dim && c < group * 128 + 128; c += 32) top = fmaxf(top, fabsf(x[c]));
    const float scale = power_of_two_scale(lanes_max<1, 16>(top));
    for (int c = group * 128 + lane(); c < dim && c < group * 128 + 128; c += 32) store(to, DType::kF8E4M3, c, x[c] / scale);
    if (lane() == 0) reinterpret_cast<float*>(to + dim)[group] = scale;
  }
}

struct AttendArgs {
  LatentPages pages;
  ConstRows q;
  Rows out;
  const int32_t* pools;
  const int32_t* counts;
  const int32_t* tail_begin;
  int32_t pool_capacity, pool, heads;
  float scale;
  // The expanded form: queries and results have these widths and pass through a head's key and value weights.
  WeightSet key, value;
  int32_t qk_dim, v_dim, first_head;
};

struct LatentToken {
  const LatentPages& pages;
  const std::byte* row;
  __device__ float key(int c) const { return latent(pages, row, c); }
  __device__ float value(int c) const { return latent(pages, row, c); }
};

// One head of one row. q [dim] and o [dim] in shared memory; o is the sum of the attended rows afterwards.
__device__ void attend_head(const AttendArgs& p, int64_t r, const float* q, float* o, float* scores) {
  const int32_t* pools = p.pools + r * p.pool_capacity;
  const int pooled = p.counts[r] * p.pool;
  const int tail = p.tail_begin[r];
  const int count = pooled + p.pages.positions[r] + 1 - tail;
  attend_tokens(count, p.pages.dim, p.scale, q, o, scores, [&](int i) {
    return LatentToken{p.pages, p.pages.at(r, i < pooled ? pools[i / p.pool] * p.pool + i % p.pool : tail + i - pooled)};
  });
}

__global__ void __launch_bounds__(kThreads) attend(AttendArgs p) {
  float* scores = shared_floats();
  float* q = scores + kTokens;
  const int dim = p.pages.dim;
  float* o = q + dim;
  const int64_t r = blockIdx.x / static_cast<unsigned>(p.heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.heads));
  const int64_t h = p.first_head + head;
  if (p.key.data == nullptr) {
    for (int c = thread(); c < dim; c += kThreads) q[c] = p.q.at(r, h * dim + c);
  } else {
    for (int c = thread(); c < dim; c += kThreads) {
      float sum = 0;
      for (int i = 0; i < p.qk_dim; ++i)
        sum += p.q.at(r, h * p.qk_dim + i) * load(p.key.data + head * p.key.stride, p.key.type, int64_t{i} * dim + c);
      q[c] = sum;
    }
  }
  attend_head(p, r, q, o, scores);
  if (p.value.data == nullptr) {
    for (int c = thread(); c < dim; c += kThreads) p.out.put(r, h * dim + c, o[c]);
    return;
  }
  for (int i = warp(); i < p.v_dim; i += kWarps) {
    float sum = 0;
    for (int c = lane(); c < dim; c += 32) sum += o[c] * load(p.value.data + head * p.value.stride, p.value.type, int64_t{i} * dim + c);
    sum = warp_sum(sum);
    if (lane() == 0) p.out.put(r, h * p.v_dim + i, sum);
  }
}

constexpr int64_t kMostLatent = 4096;  // fits shared memory that needs no leave

template <class Params>
AttendArgs attend_args(const Params& p) {
  AttendArgs a{};
  a.pages = latent_pages(p.batch, p.pages, p.layout);
  a.q = rows_of(p.q);
  a.out = rows_of(p.out);
  a.pools = p.selection.pools;
  a.counts = p.selection.counts;
  a.tail_begin = p.selection.tail_begin;
  a.pool_capacity = p.selection.pool_capacity;
  a.pool = p.pool;
  a.heads = static_cast<int32_t>(p.heads);
  a.scale = p.scale;
  return a;
}
cudaError_t launch_attend(const AttendArgs& a, int64_t rows, cudaStream_t s) {
  const size_t shared = static_cast<size_t>(kTokens + 2 * a.pages.dim) * sizeof(float);
  return launch(attend, blocks_of(rows * a.heads), kThreads, shared, 1, false, s, a);
}

void run_latent_write(ops::Context& ctx, const ops::LatentWriteParams& p) {
  const LatentWriteArgs a{latent_pages(p.batch, p.pages, p.layout), rows_of(p.x), p.weight, p.eps};
  const size_t shared = static_cast<size_t>(kScratch + p.layout.dim) * sizeof(float);
  launched(ctx, launch(write_latents, blocks_of(p.batch.row_count), kThreads, shared, 1, false, stream(ctx), a), "latent_write");
}

void run_attend(ops::Context& ctx, const ops::MlaAttendParams& p) {
  launched(ctx, launch_attend(attend_args(p), p.batch.row_count, stream(ctx)), "mla_attend");
}

// The queries pass through the keys' weights and the result through the values': the same sums in another order.
void run_attend_expanded(ops::Context& ctx, const ops::MlaAttendExpandedParams& p) {
  cudaError_t e = cudaSuccess;
  for (int64_t first = 0; first < p.heads && e == cudaSuccess;) {
    const int64_t n = std::min(evenly_spaced(p.key + first, p.heads - first), evenly_spaced(p.value + first, p.heads - first));
    AttendArgs a = attend_args(p);
    a.heads = static_cast<int32_t>(n);
    a.first_head = static_cast<int32_t>(first);
    a.key = weight_set(p.key + first, n);
    a.value = weight_set(p.value + first, n);
    a.qk_dim = static_cast<int32_t>(p.key[0].n);
    a.v_dim = static_cast<int32_t>(p.value[0].n);
    e = launch_attend(a, p.batch.row_count, stream(ctx));
    first += n;
  }
  launched(ctx, e, "mla_attend_expanded");
}

}  // namespace

void register_attention(ops::OpTable& table) {
  table.latent_write = {run_latent_write,
                        [](const ops::LatentWriteParams& p) { return is_float(p.x.dtype) && p.layout.dim <= kMostLatent; },
                        [](const ops::Executor&, const ops::LatentWriteParams&) { return int64_t{0}; }};
  table.mla_attend = {
      run_attend, [](const ops::MlaAttendParams& p) { return is_float(p.q.dtype) && is_float(p.out.dtype) && p.layout.dim <= kMostLatent; },
      [](const ops::Executor&, const ops::MlaAttendParams&) { return int64_t{0}; }};
  table.mla_attend_expanded = {
      run_attend_expanded,
      [](const ops::MlaAttendExpandedParams& p) { return is_float(p.q.dtype) && is_float(p.out.dtype) && p.layout.dim <= kMostLatent; },
      [](const ops::Executor&, const ops::MlaAttendExpandedParams&) { return int64_t{0}; }};
}

}  // namespace baton::cuda::plain
