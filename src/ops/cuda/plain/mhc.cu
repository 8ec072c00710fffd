// mHC: a block a row for everything between two sub-layers.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/plain/block.cuh"
#include "ops/cuda/plain/element.cuh"
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/register.h"

namespace baton::cuda::plain {
namespace {

struct MhcArgs {
  Rows streams;
  ConstRows y;  // without data: nothing to expand
  ConstRows from_post, from_comb;
  int32_t s, d;
  // mix only
  ConstRows fn;
  const float* base;
  const float* scale;
  Rows post, comb;
  float hc_eps;
  int32_t iterations;
  // mix and final
  const float* norm_weight;
  float norm_eps;
  Rows x;
};

// The block's row of streams, expanded in place. post and comb are read before anything is written, since they may be outputs as well.
__device__ void expand_row(const MhcArgs& p, int64_t r, float* coefficients) {
  const int s = p.s;
  for (int i = thread(); i < s + s * s; i += kThreads) coefficients[i] = i < s ? p.from_post.at(r, i) : p.from_comb.at(r, i - s);
  __syncthreads();
  const float* comb = coefficients + s;
  for (int c = thread(); c < p.d; c += kThreads) {
    float x[ops::kMaxStreams];
    for (int j = 0; j < s; ++j) x[j] = p.streams.at(r, int64_t{j} * p.d + c);
    const float y = p.y.at(r, c);
    for (int i = 0; i < s; ++i) {
      float sum = coefficients[i] * y;
      for (int j = 0; j < s; ++j) sum += comb[j * s + i] * x[j];
      p.streams.put(r, int64_t{i} * p.d + c, sum);
    }
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) expand(MhcArgs p) { expand_row(p, blockIdx.x, shared_floats()); }

// x = norm of the streams' sum under `weight` [s].
__device__ void collapse_row(const MhcArgs& p, int64_t r, const float* weight, float* u, float* scratch) {
  for (int c = thread(); c < p.d; c += kThreads) {
    float sum = weight[0] * p.streams.at(r, c);
    for (int i = 1; i < p.s; ++i) sum += weight[i] * p.streams.at(r, int64_t{i} * p.d + c);
    u[c] = rounded(sum, p.x.type);
  }
  const float factor = p.norm_weight != nullptr ? inverse_rms(u, p.d, p.norm_eps, scratch) : 1.0F;
  for (int c = thread(); c < p.d; c += kThreads) p.x.put(r, c, u[c] * factor * (p.norm_weight != nullptr ? p.norm_weight[c] : 1.0F));
}

// Each line of the matrix by one thread: `step` between lines, `stride` inside one.
__device__ void normalise_lines(float* comb, int s, int step, int stride, float eps) {
  __syncthreads();
  if (thread() < s) {
    float sum = eps;
    for (int j = 0; j < s; ++j) sum += comb[thread() * step + j * stride];
    for (int j = 0; j < s; ++j) comb[thread() * step + j * stride] /= sum;
  }
}

__global__ void __launch_bounds__(kThreads) mix(MhcArgs p) {
  auto* scratch = shared_floats();
  const int s = p.s;
  float* m = scratch + kScratch;  // [(2 + s) s] logits
  float* pre = m + (2 + s) * s;   // [s]
  float* comb = pre + s;          // [s, s]; also what expand_row reads
  float* u = comb + s + s * s;    // [d]
  const int64_t r = blockIdx.x;
  if (p.y.data != nullptr) expand_row(p, r, comb);
  const int width = s * p.d;
  float squares = 0;
  for (int c = thread(); c < width; c += kThreads) {
    const float x = p.streams.at(r, c);
    squares += x * x;
  }
  const float inverse = 1.0F / sqrtf(block_sum(squares, scratch) / static_cast<float>(width) + p.norm_eps);
  // A warp an output.
  for (int n = warp(); n < (2 + s) * s; n += kWarps) {
    float sum = 0;
    for (int c = lane(); c < width; c += 32) sum += p.streams.at(r, c) * p.fn.at(n, c);
    sum = warp_sum(sum);
    if (lane() == 0) m[n] = sum * inverse;
  }
  __syncthreads();
  if (thread() < s) {
    const int i = thread();
    pre[i] = sigmoid(m[i] * p.scale[0] + p.base[i]) + p.hc_eps;
    p.post.put(r, i, 2.0F * sigmoid(m[s + i] * p.scale[1] + p.base[s + i]));
    float* row = comb + i * s;
    float top = -infinity();
    for (int j = 0; j < s; ++j) top = fmaxf(top, row[j] = m[2 * s + i * s + j] * p.scale[2] + p.base[2 * s + i * s + j]);
    float sum = 0;
    for (int j = 0; j < s; ++j) sum += row[j] = expf(row[j] - top);
    for (int j = 0; j < s; ++j) row[j] = row[j] / sum + p.hc_eps;
  }
  normalise_lines(comb, s, 1, s, p.hc_eps);  // columns
  for (int i = 1; i < p.iterations; ++i) {
    normalise_lines(comb, s, s, 1, p.hc_eps);
    normalise_lines(comb, s, 1, s, p.hc_eps);
  }
  __syncthreads();
  for (int i = thread(); i < s * s; i += kThreads) p.comb.put(r, i, comb[i]);
  collapse_row(p, r, pre, u, scratch);
}

__global__ void __launch_bounds__(kThreads) final_norm(MhcArgs p) {
  auto* scratch = shared_floats();
  float* mean = scratch + kScratch;
  for (int i = thread(); i < p.s; i += kThreads) mean[i] = 1.0F / static_cast<float>(p.s);
  __syncthreads();
  collapse_row(p, blockIdx.x, mean, mean + p.s, scratch);
}

size_t mix_floats(int64_t s, int64_t d) { return static_cast<size_t>(kScratch + (2 + s) * s + 2 * s + s * s + d); }

MhcArgs common(const MatrixView& streams, int64_t s) {
  MhcArgs a{};
  a.streams = rows_of(streams);
  a.s = static_cast<int32_t>(s);
  a.d = static_cast<int32_t>(streams.cols / s);
  return a;
}

void run_expand(ops::Context& ctx, const ops::MhcExpandParams& p) {
  MhcArgs a = common(p.streams, p.stream_count);
  a.y = rows_of(p.y);
  a.from_post = rows_of(ConstMatrixView(p.from.post));
  a.from_comb = rows_of(ConstMatrixView(p.from.comb));
  const size_t shared = static_cast<size_t>(a.s + a.s * a.s) * sizeof(float);
  launched(ctx, launch(expand, blocks_of(p.streams.rows), kThreads, shared, 1, false, stream(ctx), a), "mhc_expand");
}

void run_mix(ops::Context& ctx, const ops::MhcMixParams& p) {
  MhcArgs a = common(p.streams, p.stream_count);
  a.y = rows_of(p.y);
  if (!p.y.empty()) {
    a.from_post = rows_of(ConstMatrixView(p.from.post));
    a.from_comb = rows_of(ConstMatrixView(p.from.comb));
  }
  a.fn = {static_cast<const std::byte*>(p.fn.data), p.fn.k * dtype_bytes(p.fn.dtype), p.fn.dtype};
  a.base = p.base;
  a.scale = p.scale;
  a.post = rows_of(p.to.post);
  a.comb = rows_of(p.to.comb);
  a.hc_eps = p.hc_eps;
  a.iterations = p.sinkhorn_iterations;
  a.norm_weight = p.norm_weight;
  a.norm_eps = p.norm_eps;
  a.x = rows_of(p.x);
  const size_t shared = mix_floats(a.s, a.d) * sizeof(float);
  launched(ctx, launch(mix, blocks_of(p.streams.rows), kThreads, shared, 1, false, stream(ctx), a), "mhc_mix");
}

void run_final(ops::Context& ctx, const ops::MhcFinalParams& p) {
  const MatrixView streams{const_cast<void*>(p.streams.data), p.streams.dtype, p.streams.rows, p.streams.cols, p.streams.stride};
  MhcArgs a = common(streams, p.stream_count);
  a.norm_weight = p.norm_weight;
  a.norm_eps = p.norm_eps;
  a.x = rows_of(p.h);
  const size_t shared = mix_floats(a.s, a.d) * sizeof(float);
  launched(ctx, launch(final_norm, blocks_of(p.streams.rows), kThreads, shared, 1, false, stream(ctx), a), "mhc_final");
}

constexpr size_t kMostShared = 48 << 10;
bool fits(const ConstMatrixView& streams, int64_t s) {
  return is_float(streams.dtype) && s >= 1 && s <= ops::kMaxStreams && mix_floats(s, streams.cols / s) * sizeof(float) <= kMostShared;
}

}  // namespace

void register_mhc(ops::OpTable& table) {
  table.mhc_expand = {run_expand, [](const ops::MhcExpandParams& p) { return fits(p.streams, p.stream_count) && is_float(p.y.dtype); },
                      [](const ops::Executor&, const ops::MhcExpandParams&) { return int64_t{0}; }};
  table.mhc_mix = {
      run_mix, [](const ops::MhcMixParams& p) { return fits(p.streams, p.stream_count) && is_float(p.x.dtype) && is_float(p.fn.dtype); },
      [](const ops::Executor&, const ops::MhcMixParams&) { return int64_t{0}; }};
  table.mhc_final = {run_final, [](const ops::MhcFinalParams& p) { return fits(p.streams, p.stream_count) && is_float(p.h.dtype); },
                     [](const ops::Executor&, const ops::MhcFinalParams&) { return int64_t{0}; }};
}

}  // namespace baton::cuda::plain
