// The path of a block drafter through its candidates, on the CPU.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "ops/block_draft.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/logit_row.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::DraftPathParams;
using ops::DraftPathRow;

struct Scratch {
  Candidate* chosen;  // [rows, top] of every position, most likely first
  int32_t* counts;    // [rows] how many there are
  Candidate* sorted;  // [threads, vocabulary]
  float* walk;        // [threads, 3 * rank + 2 * top]

  Scratch(Arena& arena, const ops::Executor& e, const DraftPathParams& p)
      : chosen(arena.array<Candidate>(p.logits.rows * p.top)), counts(arena.array<int32_t>(p.logits.rows)),
        sorted(arena.array<Candidate>(e.pool().size() * p.logits.cols)), walk(arena.array<float>(e.pool().size() * walk_floats(p))) {}

  static int64_t walk_floats(const DraftPathParams& p) { return 3 * p.hidden.cols + 2 * p.top; }
};

void choose(const DraftPathParams& p, int64_t r, Candidate* scratch, Candidate* to, int32_t& count) {
  const float* logits = p.logits.row<float>(r);
  const int64_t n = p.logits.cols;
  count = 0;
  if (!find_peak(logits, n).finite) return;
  count = static_cast<int32_t>(most_likely(logits, n, std::min(p.top, n), scratch));
  std::sort(scratch, scratch + count, more_likely);
  std::copy_n(scratch, count, to);
}

// Index of the candidate that is drawn; probabilities of all of them. Equal scores go to the earlier, more likely one.
int64_t draw(const DraftPathRow& row, int32_t position, const Candidate* candidates, int64_t count, const float* scores,
             float* probabilities) {
  const int64_t best = std::max_element(scores, scores + count) - scores;
  if (row.temperature <= 0) {
    std::fill_n(probabilities, count, 0.0F);
    probabilities[best] = 1;
    return best;
  }
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp((double{scores[i]} - scores[best]) / row.temperature);
  int64_t drawn = 0;
  double drawn_value = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    const double z = (double{scores[i]} - scores[best]) / row.temperature;
    probabilities[i] = static_cast<float>(std::exp(z) / sum);
    const auto token = static_cast<uint32_t>(candidates[i].token);
    const uint32_t bits = philox(row.seed, {token >> 2U, static_cast<uint32_t>(position), row.stream, 0})[token & 3U];
    const double value = z - std::log(-std::log(double{unit_interval(bits)}));
    if (value > drawn_value) {
      drawn_value = value;
      drawn = i;
    }
  }
  return drawn;
}

void walk(const RowKernels& kernels, const DraftPathParams& p, const Scratch& s, int64_t block, float* scratch) {
  const int64_t rank = p.hidden.cols;
  float* const gate = scratch;
  float* const code = gate + rank;
  float* const scores = code + 2 * rank;
  float* const probabilities = scores + p.top;
  const DraftPathRow row = p.rows == nullptr ? DraftPathRow{} : p.rows[block];
  int32_t before = p.anchors[block];
  for (int64_t i = 0; i < p.steps; ++i) {
    const int64_t r = block * p.steps + i;
    const Candidate* candidates = s.chosen + r * p.top;
    const int64_t count = s.counts[r];
    int32_t token = 0;
    if (count > 0) {
      BATON_CHECK_MSG(before >= 0 && before < p.predecessor.rows, "token {} of a vocabulary of {}", before, p.predecessor.rows);
      kernels.widen(p.hidden.row_bytes(r), p.hidden.dtype, gate, rank);
      kernels.widen(p.predecessor.row_bytes(before), p.predecessor.dtype, code, rank);
      for (int64_t j = 0; j < rank; ++j) gate[j] *= code[j];
      for (int64_t c = 0; c < count; ++c) {
        const float* b = float_row(kernels, p.successor, candidates[c].token, 0, rank, code + rank);
        double sum = 0;  // short sums; in double they come out alike on every instruction set
        for (int64_t j = 0; j < rank; ++j) sum += double{gate[j]} * double{b[j]};
        scores[c] = static_cast<float>(candidates[c].logit + sum);
      }
      token = candidates[draw(row, row.position + static_cast<int32_t>(i), candidates, count, scores, probabilities)].token;
    }
    for (int64_t c = 0; c < p.top; ++c) {
      if (p.candidates != nullptr) p.candidates[r * p.top + c] = c < count ? candidates[c].token : -1;
      if (p.probabilities != nullptr) p.probabilities[r * p.top + c] = c < count ? probabilities[c] : 0;
    }
    p.ids[r] = before = token;
  }
}

void run_path(ops::Context& ctx, const DraftPathParams& p) {
  const int64_t mark = ctx.workspace->mark();
  const Scratch s(*ctx.workspace, *ctx.executor, p);
  BATON_CHECK(p.logits.rows % p.steps == 0 && p.hidden.rows == p.logits.rows && p.successor.rows >= p.logits.cols);
  ctx.executor->pool().parallel_for(p.logits.rows, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; ++r) choose(p, r, s.sorted + thread * p.logits.cols, s.chosen + r * p.top, s.counts[r]);
  });
  ctx.executor->pool().parallel_for(p.logits.rows / p.steps, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t b = begin; b < end; ++b) walk(ctx.executor->rows(), p, s, b, s.walk + thread * Scratch::walk_floats(p));
  });
  ctx.workspace->release(mark);
}

}  // namespace

void register_draft_path(ops::OpTable& table) {
  table.draft_path = {run_path,
                      [](const DraftPathParams& p) {
                        return p.logits.dtype == DType::kF32 && is_float_type(p.hidden.dtype) && is_float_type(p.predecessor.dtype) &&
                               is_float_type(p.successor.dtype) && p.top > 0 && p.steps > 0;
                      },
                      [](const ops::Executor& e, const DraftPathParams& p) {
                        Arena plan;
                        const Scratch s(plan, e, p);
                        return plan.peak();
                      }};
}

}  // namespace baton::cpu
