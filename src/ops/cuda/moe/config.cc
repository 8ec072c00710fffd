#include "ops/cuda/moe/config.h"

#include <algorithm>

namespace baton::cuda::moe {
namespace {
constexpr int64_t kAlign = 256;
constexpr int64_t kPlanRows = 1024;  // of one block of the plan kernels
int64_t round_up(int64_t n, int64_t a) { return (n + a - 1) / a * a; }
}  // namespace

bool supported(const Problem& p) {
  // Scale rows are copied in units of 16 bytes (512 columns) and kept for at most 32 blocks of k; a row of x is quantised by one block.
  const auto fits = [](int64_t k) { return k > 0 && k % 512 == 0 && k <= 4096; };
  return p.rows >= 0 && p.choices >= 1 && p.choices <= 16 && p.experts_local >= 1 && p.experts_local <= 512 &&
         p.experts_total >= p.experts_local && fits(p.width) && fits(p.inner) && p.rows * p.choices < (int64_t{1} << 30);
}

Config configure(const Problem& p) {
  const int64_t expected = p.rows * p.choices / std::max<int64_t>(p.experts_total, 1);  // rows an expert when routing is even
  const Variant variant = expected > 96 ? Variant::kPrefill : expected > 12 ? Variant::kMedium : Variant::kDecode;
  return configure(p, variant);
}

Config configure(const Problem& p, Variant variant) {
  Config c;
  c.variant = variant;
  c.tile_rows = variant == Variant::kDecode ? 64 : 128;
  c.even = variant != Variant::kPrefill;
  // A row chooses an expert at most once, so it has at most min(choices, experts_local) slots here.
  const int64_t entries = p.rows * std::min<int64_t>(p.choices, p.experts_local);
  const int64_t used_experts = std::min<int64_t>(entries, p.experts_local);
  c.slots = round_up(entries + 7 * used_experts, 8);
  c.max_units = static_cast<int32_t>(used_experts + entries / c.tile_rows + 1);
  c.plan_blocks = static_cast<int32_t>(std::max<int64_t>((p.rows + kPlanRows - 1) / kPlanRows, 1));
  return c;
}

WorkspaceLayout workspace_layout(const Problem& p, const Config& c) {
  WorkspaceLayout w{};
  int64_t used = 0;
  const auto take = [&used](int64_t bytes) {
    const int64_t at = used;
    used = round_up(used + bytes, kAlign);
    return at;
  };
  w.x = take(c.slots * p.width);
  w.x_scale = take(c.slots * (p.width / 128) * 4);
  w.h = take(c.slots * p.inner);
  w.h_scale = take(c.slots * (p.inner / 128) * 4);
  w.y = take(c.slots * p.width * 2);
  w.row_slot = take(p.rows * p.choices * 4);
  w.units = take(int64_t{c.max_units} * 16);
  w.control = take(64);
  w.ready = take(int64_t{c.max_units} * 4);
  w.block_counts = take(int64_t{c.plan_blocks} * p.experts_local * 4);
  w.bytes = used;
  return w;
}

}  // namespace baton::cuda::moe
