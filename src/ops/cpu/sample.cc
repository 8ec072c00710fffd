// Sampling on the CPU: edits, filters, Gumbel-max over the kept columns with one Philox value per (seed, position, column).
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/logit_filter.h"
#include "ops/cpu/register.h"

namespace baton::cpu {
namespace {

using ops::SampleParams;
using ops::SamplingRow;

struct RowScratch {
  float* edited;  // [n]
  FilterScratch filter;
};

bool has_edits(const SamplingRow& row) {
  const bool penalties = row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0;
  return row.bias_count > 0 || row.banned_count > 0 || row.allowed != nullptr || (row.seen_count > 0 && penalties);
}

// Steps 1 and 2. What removes tokens comes last, which changes no finite sum and lets it win over a bias of +inf.
void edit(const float* logits, int64_t n, const SamplingRow& row, float* out) {
  const auto at = [&](int32_t token) -> float& {
    BATON_CHECK_MSG(token >= 0 && token < n, "token {} of a vocabulary of {}", token, n);
    return out[token];
  };
  std::copy_n(logits, n, out);
  for (int32_t i = 0; i < row.bias_count; ++i) at(row.bias[i].token) += row.bias[i].bias;
  for (int32_t i = 0; i < row.seen_count; ++i) {
    const ops::SeenToken& seen = row.seen[i];
    float& logit = at(seen.token);
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (seen.generated > 0) logit -= row.frequency_penalty * static_cast<float>(seen.generated) + row.presence_penalty;
  }
  for (int32_t i = 0; i < row.banned_count; ++i) at(row.banned[i]) = -INFINITY;
  for (int64_t begin = 0; row.allowed != nullptr && begin < n; begin += 32) {
    const uint32_t word = row.allowed[begin / 32];
    if (word == ~0U) continue;
    for (int64_t i = begin; i < std::min(begin + 32, n); ++i)
      if ((word >> (i - begin) & 1U) == 0) out[i] = -INFINITY;
  }
}

// Gumbel noise of the columns of a row. Neighbours share a Philox block, which is kept for the next call.
class Noise {
 public:
  static constexpr float kMost = 17;  // -log(-log(u)) of the largest u, 1 - 2^-24, is 16.6

  explicit Noise(const SamplingRow& row) : seed_(row.seed), position_(static_cast<uint32_t>(row.position)) {}
  float operator()(int64_t column) {
    const auto c = static_cast<uint32_t>(column);
    if (c >> 2U != group_) {
      group_ = c >> 2U;
      block_ = philox(seed_, {group_, position_, 0, 0});
    }
    return -std::log(-std::log(unit_interval(block_[c & 3U])));
  }

 private:
  uint64_t seed_;
  uint32_t position_;
  uint32_t group_ = ~0U;  // of no column
  PhiloxBlock block_{};
};

// Step 4 over the logits that reach `least`.
int32_t draw(const float* logits, int64_t n, const Peak& peak, const SamplingRow& row, float least) {
  Noise noise(row);
  // Where the temperature is so low that the peak overflows, logits are taken relative to it: the same distribution, other last bits. Rows
  // that do not need it keep the value that head.h defines.
  const float shift = std::isfinite(peak.logit / row.temperature) ? 0 : peak.logit;
  const auto scaled = [&](float logit) { return (logit - shift) / row.temperature; };
  int64_t best = peak.token;
  float best_value = scaled(peak.logit) + noise(best);
  // Even with the most noise a logit of `hopeless` loses to the peak. Rounding is monotone, so everything below it does too: most of the
  // vocabulary needs no noise. It is checked because `hopeless` itself is rounded.
  const float hopeless = (best_value - Noise::kMost - 1) * row.temperature + shift;
  if (scaled(hopeless) + Noise::kMost < best_value) least = std::max(least, hopeless);
  for_each_reaching(logits, n, least, [&](int64_t i) {
    const float value = scaled(logits[i]) + noise(i);
    if (value > best_value || (value == best_value && i < best)) {
      best = i;
      best_value = value;
    }
  });
  return static_cast<int32_t>(best);
}

// Softmax of what reaches `least`; the rest is 0.
void write_probabilities(const float* logits, int64_t n, const Peak& peak, float temperature, float least, float* out) {
  std::fill_n(out, n, 0.0F);
  double sum = 0;
  for_each_reaching(logits, n, least, [&](int64_t i) { sum += out[i] = std::exp((logits[i] - peak.logit) / temperature); });
  for_each_reaching(logits, n, least, [&](int64_t i) { out[i] = static_cast<float>(double{out[i]} / sum); });
}

// Log softmax at the drawn token, and at the most likely ones: `row.logprobs` of them, padded with {-1, -inf} beyond the vocabulary.
void write_logprobs(const float* logits, int64_t n, const Peak& peak, int32_t token, int32_t k, float* logprob, ops::TokenLogprob* top,
                    Candidate* scratch) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - peak.logit);
  const double log_sum = peak.logit + std::log(sum);
  *logprob = static_cast<float>(logits[token] - log_sum);
  const int64_t count = most_likely(logits, n, k, scratch);
  std::sort(scratch, scratch + count, more_likely);
  for (int64_t i = 0; i < count; ++i) top[i] = {scratch[i].token, static_cast<float>(scratch[i].logit - log_sum)};
  std::fill(top + count, top + k, ops::TokenLogprob{-1, -INFINITY});
}

void sample_row(const SampleParams& p, int64_t r, const RowScratch& scratch) {
  const SamplingRow& row = p.rows[r];
  const float* const raw = p.logits.row<float>(r);
  const int64_t n = p.logits.cols;
  const Peak raw_peak = find_peak(raw, n);
  if (!raw_peak.finite) {
    p.ids[r] = ops::kNotFinite;
    return;
  }
  const float* logits = raw;
  Peak peak = raw_peak;
  if (has_edits(row)) {
    edit(raw, n, row, scratch.edited);
    peak = find_peak(scratch.edited, n);
    if (peak.logit == -INFINITY) {
      p.ids[r] = ops::kNothingAllowed;
      return;
    }
    if (peak.logit == INFINITY) {  // such tokens have all the mass, in equal parts
      std::transform(scratch.edited, scratch.edited + n, scratch.edited, [](float x) { return x == INFINITY ? 0.0F : -INFINITY; });
      peak.logit = 0;
    }
    logits = scratch.edited;
  }
  int32_t token = peak.token;
  if (row.temperature > 0) {
    const float least = least_kept(logits, n, peak, row, scratch.filter);
    token = draw(logits, n, peak, row, least);
    if (p.probabilities != nullptr) write_probabilities(logits, n, peak, row.temperature, least, p.probabilities + r * n);
  }
  p.ids[r] = token;
  if (row.logprobs < 0) return;
  BATON_CHECK_MSG(row.logprobs <= p.top_stride, "{} log-probabilities wanted, room for {}", row.logprobs, p.top_stride);
  ops::TokenLogprob* const top = row.logprobs > 0 ? p.top + r * p.top_stride : nullptr;
  write_logprobs(raw, n, raw_peak, token, row.logprobs, p.logprobs + r, top, scratch.filter.candidates);
}

// Scratch for each thread, or for each row if there are fewer.
class Scratch {
 public:
  Scratch(const ops::Executor& e, const SampleParams& p, Arena& arena)
      : n_(p.logits.cols), per_row_(p.logits.rows <= e.pool().size()), edited_(arena.array<float>(count(e, p) * n_)),
        candidates_(arena.array<Candidate>(count(e, p) * n_)), masses_(arena.array<double>(count(e, p) * kFilterBuckets)) {}

  RowScratch of(int64_t row, int thread) const {
    const int64_t i = per_row_ ? row : thread;
    return {edited_ + i * n_, {candidates_ + i * n_, masses_ + i * kFilterBuckets}};
  }

 private:
  static int64_t count(const ops::Executor& e, const SampleParams& p) { return std::min<int64_t>(e.pool().size(), p.logits.rows); }

  int64_t n_;
  bool per_row_;
  float* edited_;
  Candidate* candidates_;
  double* masses_;
};

void run_sample(ops::Context& ctx, const SampleParams& p) {
  const int64_t mark = ctx.workspace->mark();
  const Scratch scratch(*ctx.executor, p, *ctx.workspace);
  ctx.executor->pool().parallel_for(p.logits.rows, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; ++r) sample_row(p, r, scratch.of(r, thread));
  });
  ctx.workspace->release(mark);
}

int64_t sample_workspace(const ops::Executor& e, const SampleParams& p) {
  Arena plan;
  const Scratch scratch(e, p, plan);
  return plan.peak();
}

}  // namespace

void register_sample(ops::OpTable& table) {
  table.sample = {run_sample, [](const SampleParams& p) { return p.logits.dtype == DType::kF32; }, sample_workspace};
}

}  // namespace baton::cpu
