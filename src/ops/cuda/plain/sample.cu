// Sampling: a block a row. What ops/head.h defines, step by step; thresholds are found by halving over the ordered bits of the logits.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/plain/block.cuh"
#include "ops/cuda/plain/element.cuh"
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/random.cuh"
#include "ops/cuda/plain/register.h"

namespace baton::cuda::plain {
namespace {

struct SampleArgs {
  const float* logits;
  int64_t stride;
  const ops::SamplingRow* rows;
  int32_t* ids;
  float* logprobs;
  ops::TokenLogprob* top;
  int32_t top_stride;
  int32_t vocabulary;
  float* edited;  // [m, vocabulary]
};

__device__ float gumbel(const ops::SamplingRow& row, int column) {
  return -logf(-logf(unit_of_token(row.seed, static_cast<uint32_t>(column), static_cast<uint32_t>(row.position), 0)));
}

class Row {
 public:
  __device__ Row(const float* logits, int n, float* scratch) : l_(logits), n_(n), scratch_(scratch) {}

  template <class Fn>
  __device__ void each(const Fn& fn) const {
    for (int i = thread(); i < n_; i += kThreads) fn(i, l_[i]);
  }
  // The largest, ties to the lower id.
  __device__ Best peak() const {
    Best best{-infinity(), INT32_MAX};
    each([&](int i, float x) { best = better(best, {x, i}); });
    return block_best(best, scratch_);
  }
  __device__ bool all_finite() const {
    int bad = 0;
    each([&](int, float x) { bad += fabsf(x) < infinity() ? 0 : 1; });
    return block_count(bad, scratch_) == 0;
  }
  // The k-th largest, or -inf if fewer are more than -inf.
  __device__ float kth(int k) const {
    const auto reach = [&](uint32_t key) {
      int n = 0;
      each([&](int, float x) { n += order_key(x) >= key ? 1 : 0; });
      return block_count(n, scratch_) >= k;
    };
    const uint32_t nothing = order_key(-infinity());
    return reach(nothing + 1) ? of_order_key(largest_key(nothing + 1, reach)) : -infinity();
  }
  // The least logit of the smallest set of most likely ones that reaches top_p of the mass at or above `bound`.
  __device__ float nucleus(const Best& peak, float temperature, float top_p, float bound) const {
    const auto mass = [&](uint32_t key) {
      double sum = 0;
      each([&](int, float x) {
        if (order_key(x) >= key) sum += static_cast<double>(expf((x - peak.value) / temperature));
      });
      return block_sum(sum, scratch_);
    };
    const uint32_t low = order_key(bound);
    const double wanted = static_cast<double>(top_p) * mass(low);
    return of_order_key(largest_key(low, [&](uint32_t key) { return mass(key) >= wanted; }));
  }
  __device__ float least_kept(const ops::SamplingRow& row, const Best& peak) const {
    float bound = -infinity();
    if (row.top_k > 0 && row.top_k < n_) bound = kth(row.top_k);
    if (row.top_p < 1) bound = nucleus(peak, row.temperature, row.top_p, bound);
    if (row.min_p > 0) {
      const double exact = static_cast<double>(peak.value) + static_cast<double>(row.temperature) * log(static_cast<double>(row.min_p));
      float least = static_cast<float>(exact);
      if (static_cast<double>(least) < exact) least = of_order_key(order_key(least) + 1);
      bound = fmaxf(bound, fminf(least, peak.value));
    }
    return bound;
  }
  __device__ int32_t draw(const ops::SamplingRow& row, const Best& peak) const {
    const float least = least_kept(row, peak);
    const float shift = fabsf(peak.value / row.temperature) < infinity() ? 0.0F : peak.value;
    Best best{-infinity(), peak.index};
    each([&](int i, float x) {
      if (x >= least && x > -infinity()) best = better(best, {(x - shift) / row.temperature + gumbel(row, i), i});
    });
    return block_best(best, scratch_).index;
  }
  __device__ void logprobs(const Best& peak, int32_t token, int k, float* logprob, ops::TokenLogprob* top) const {
    double sum = 0;
    each([&](int, float x) { sum += static_cast<double>(expf(x - peak.value)); });
    const double log_sum = static_cast<double>(peak.value) + log(block_sum(sum, scratch_));
    if (thread() == 0) *logprob = static_cast<float>(static_cast<double>(l_[token]) - log_sum);
    Best last{infinity(), -1};
    for (int j = 0; j < k; ++j) {
      last = next_best(l_, n_, last, scratch_);
      const bool none = last.index == INT32_MAX;
      if (thread() == 0)
        top[j] = none ? ops::TokenLogprob{-1, -infinity()}
                      : ops::TokenLogprob{last.index, static_cast<float>(static_cast<double>(last.value) - log_sum)};
    }
  }

 private:
  const float* l_;
  int n_;
  float* scratch_;
};

// Steps 1 and 2 of ops/head.h. What removes tokens comes last, so that it wins over a bias of +inf.
__device__ void edit(const float* logits, int n, const ops::SamplingRow& row, float* out) {
  const auto at = [&](int32_t token) -> float& {
    if (token < 0 || token >= n) __trap();
    return out[token];
  };
  for (int i = thread(); i < n; i += kThreads) out[i] = logits[i];
  __syncthreads();
  for (int i = thread(); i < row.bias_count; i += kThreads) at(row.bias[i].token) += row.bias[i].bias;
  __syncthreads();
  for (int i = thread(); i < row.seen_count; i += kThreads) {
    const ops::SeenToken seen = row.seen[i];
    float& logit = at(seen.token);
    float x = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (seen.generated > 0) x -= row.frequency_penalty * static_cast<float>(seen.generated) + row.presence_penalty;
    logit = x;
  }
  __syncthreads();
  for (int i = thread(); i < row.banned_count; i += kThreads) at(row.banned[i]) = -infinity();
  __syncthreads();
  for (int i = thread(); row.allowed != nullptr && i < n; i += kThreads)
    if ((row.allowed[i / 32] >> (i % 32) & 1U) == 0) out[i] = -infinity();
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) sample_rows(SampleArgs p) {
  auto* scratch = shared_floats();
  const int64_t r = blockIdx.x;
  const int n = p.vocabulary;
  const ops::SamplingRow row = p.rows[r];
  const Row raw(p.logits + r * p.stride, n, scratch);
  const auto give = [&](int32_t id) {
    if (thread() == 0) p.ids[r] = id;
  };
  if (!raw.all_finite()) return give(ops::kNotFinite);
  const Best raw_peak = raw.peak();
  const bool penalties = row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0;
  const bool edits = row.bias_count > 0 || row.banned_count > 0 || row.allowed != nullptr || (row.seen_count > 0 && penalties);
  Best peak = raw_peak;
  Row drawn = raw;
  if (edits) {
    float* edited = p.edited + r * n;
    edit(p.logits + r * p.stride, n, row, edited);
    drawn = Row(edited, n, scratch);
    peak = drawn.peak();
    if (peak.value == -infinity()) return give(ops::kNothingAllowed);
    if (peak.value == infinity()) {  // such tokens have all the mass, in equal parts
      for (int i = thread(); i < n; i += kThreads) edited[i] = edited[i] == infinity() ? 0.0F : -infinity();
      __syncthreads();
      peak.value = 0;
    }
  }
  const int32_t token = row.temperature > 0 ? drawn.draw(row, peak) : peak.index;
  give(token);
  if (row.logprobs < 0) return;
  raw.logprobs(raw_peak, token, row.logprobs, p.logprobs + r, row.logprobs > 0 ? p.top + r * p.top_stride : nullptr);
}

void run_sample(ops::Context& ctx, const ops::SampleParams& p) {
  const int64_t mark = ctx.workspace->mark();
  const SampleArgs a{static_cast<const float*>(p.logits.data),
                     p.logits.stride,
                     p.rows,
                     p.ids,
                     p.logprobs,
                     p.top,
                     p.top_stride,
                     static_cast<int32_t>(p.logits.cols),
                     ctx.workspace->array<float>(p.logits.rows * p.logits.cols)};
  const cudaError_t e = launch(sample_rows, blocks_of(p.logits.rows), kThreads, kScratch * sizeof(float), 1, false, stream(ctx), a);
  ctx.workspace->release(mark);
  launched(ctx, e, "sample");
}

}  // namespace

void register_sample(ops::OpTable& table) {
  table.sample = {run_sample, [](const ops::SampleParams& p) { return p.logits.dtype == DType::kF32 && p.probabilities == nullptr; },
                  [](const ops::Executor&, const ops::SampleParams& p) {
                    return align_up(p.logits.rows * p.logits.cols * int64_t{sizeof(float)}, kBufferAlignment);
                  }};
}

}  // namespace baton::cuda::plain
