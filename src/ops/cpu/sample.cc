// Sampling on the CPU: Gumbel-max over the kept columns, one Philox value per (seed, position, column).
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/register.h"

namespace baton::cpu {
namespace {

using ops::SampleParams;
using ops::SamplingRow;

int32_t largest(const float* logits, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<int32_t>(best);
}

float gumbel(const SamplingRow& row, int64_t column) {
  const auto c = static_cast<uint32_t>(column);
  const PhiloxBlock block = philox(row.seed, {c >> 2U, static_cast<uint32_t>(row.position), 0, 0});
  return -std::log(-std::log(unit_interval(block[c & 3U])));
}

// The smallest logit that top_p keeps: tokens are taken by descending probability until their sum reaches top_p.
float top_p_threshold(const float* logits, int64_t n, float temperature, float top_p, float* sorted) {
  std::copy_n(logits, n, sorted);
  std::sort(sorted, sorted + n, std::greater<>());
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += std::exp((sorted[i] - sorted[0]) / temperature);
  double kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    kept += std::exp((sorted[i] - sorted[0]) / temperature);
    if (kept >= top_p * total) return sorted[i];
  }
  return sorted[n - 1];
}

int32_t draw(const float* logits, int64_t n, const SamplingRow& row, float* sorted) {
  if (!std::all_of(logits, logits + n, [](float x) { return std::isfinite(x); })) return -1;
  if (row.temperature <= 0) return largest(logits, n);
  const float least = row.top_p < 1 ? top_p_threshold(logits, n, row.temperature, row.top_p, sorted) : -INFINITY;
  int64_t best = -1;
  float best_value = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (logits[i] < least) continue;
    const float value = logits[i] / row.temperature + gumbel(row, i);
    if (best < 0 || value > best_value) {
      best = i;
      best_value = value;
    }
  }
  return static_cast<int32_t>(std::max<int64_t>(best, 0));
}

// One row to sort in per thread, or per row if there are fewer.
int64_t scratch_rows(const ops::Executor& e, const SampleParams& p) { return std::min<int64_t>(e.pool().size(), p.logits.rows); }

void run_sample(ops::Context& ctx, const SampleParams& p) {
  const int64_t n = p.logits.cols;
  const int64_t mark = ctx.workspace->mark();
  const int64_t copies = scratch_rows(*ctx.executor, p);
  float* scratch = ctx.workspace->array<float>(copies * n);
  ctx.executor->pool().parallel_for(p.logits.rows, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; ++r)
      p.ids[r] = draw(p.logits.row<float>(r), n, p.rows[r], scratch + (copies == p.logits.rows ? r : thread) * n);
  });
  ctx.workspace->release(mark);
}

}  // namespace

void register_sample(ops::OpTable& table) {
  table.sample = {
      run_sample, [](const SampleParams& p) { return p.logits.dtype == DType::kF32; },
      [](const ops::Executor& e, const SampleParams& p) { return align_up(scratch_rows(e, p) * p.logits.cols * 4, kBufferAlignment); }};
}

}  // namespace baton::cpu
