// Which experts a row goes to, and the rows of every expert.
#include "ops/cpu/moe_route.h"

#include <algorithm>
#include <limits>

#include "ops/cpu/backend.h"

namespace baton::cpu {
namespace {

using ops::ExpertAssignment;
using ops::GemmOutput;
using ops::MoeRouteParams;

constexpr int64_t kRowGrain = 64;

// The k largest of score + bias by descending value, ties to the lower id. A NaN ranks below everything: k experts are always found.
void choose(const MoeRouteParams& p, const float* score, int32_t* ids) {
  const int32_t k = p.to.k;
  BATON_CHECK(k >= 1 && k <= ops::kMaxExpertsPerToken && k <= p.to.experts);
  float best[ops::kMaxExpertsPerToken];
  int32_t found = 0;
  for (int32_t e = 0; e < p.to.experts; ++e) {
    float value = score[e] + p.bias[e];
    if (value != value) value = -std::numeric_limits<float>::infinity();
    if (found == k && value <= best[k - 1]) continue;
    int32_t at = found < k ? found++ : k - 1;
    for (; at > 0 && value > best[at - 1]; --at) {
      best[at] = best[at - 1];
      ids[at] = ids[at - 1];
    }
    best[at] = value;
    ids[at] = e;
  }
}

void weigh(const MoeRouteParams& p, const float* score, const int32_t* ids, float* weights) {
  float sum = 1;
  if (p.renormalise) {
    sum = 0;
    for (int32_t j = 0; j < p.to.k; ++j) sum += score[ids[j]];
    sum += 1e-20F;
  }
  for (int32_t j = 0; j < p.to.k; ++j) weights[j] = p.scaling * score[ids[j]] / sum;
}

// Counting sort of the choices by expert; rows keep their order.
void sort_by_expert(const ExpertAssignment& to, int64_t rows) {
  if (to.offsets == nullptr) return;
  const int64_t choices = rows * to.k;
  std::fill(to.offsets, to.offsets + to.experts + 1, 0);
  for (int64_t i = 0; i < choices; ++i) ++to.offsets[to.ids[i] + 1];
  for (int32_t e = 0; e < to.experts; ++e) to.offsets[e + 1] += to.offsets[e];
  for (int64_t i = 0; i < choices; ++i) {
    const int32_t slot = to.offsets[to.ids[i]]++;
    to.slot_row[slot] = static_cast<int32_t>(i / to.k);
    to.row_slot[i] = slot;
  }
  for (int32_t e = to.experts; e > 0; --e) to.offsets[e] = to.offsets[e - 1];  // each had moved to its successor's start
  to.offsets[0] = 0;
}

}  // namespace

void run_moe_route(ops::Context& ctx, const MoeRouteParams& p) {
  const ops::Executor& e = *ctx.executor;
  BATON_CHECK(p.scores.rows == p.x.rows && p.scores.cols == p.to.experts && p.router.n == p.to.experts);
  const GemmOutput product{p.router, p.scores};
  e.table().gemm.run(ctx, {.x = p.x, .outputs = {&product, 1}});
  e.pool().parallel_for(p.x.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      auto* score = p.scores.row<float>(r);
      e.rows().sigmoid(score, p.to.experts);
      choose(p, score, p.to.ids + r * p.to.k);
      weigh(p, score, p.to.ids + r * p.to.k, p.to.weights + r * p.to.k);
    }
  });
  sort_by_expert(p.to, p.x.rows);
}

int64_t moe_route_workspace(const ops::Executor& e, const MoeRouteParams& p) {
  const GemmOutput product{p.router, p.scores};
  return e.table().gemm.workspace_bytes(e, {.x = p.x, .outputs = {&product, 1}});
}

}  // namespace baton::cpu
