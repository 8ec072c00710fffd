#include "cache/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "cache/prefix_tree.h"

namespace baton::cache {
namespace {

int64_t pages_of(int64_t tokens) { return (tokens + kPageUnits - 1) / kPageUnits; }

std::string size_text(int64_t bytes) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  constexpr int64_t kMiB = int64_t{1} << 20;
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  return fmt::format("{} bytes", bytes);
}

Error exhausted(std::string message) { return Error{Error::Kind::kExhausted, std::move(message)}; }

constexpr int64_t kMostPages = std::numeric_limits<int32_t>::max() / 2;

int32_t as_count(int64_t n) { return static_cast<int32_t>(std::min(n, kMostPages)); }

void append_lines(std::string& out, const std::vector<BudgetLine>& lines) {
  for (const BudgetLine& l : lines)
    fmt::format_to(std::back_inserter(out), "  {:<20} {:>9} x {:>12} = {:>12}\n", l.name, l.count, size_text(l.bytes_each),
                   size_text(l.bytes()));
}

// What the smallest acceptable pool, one sequence of the longest context, leaves out of memory: the flags that would help, with numbers.
Error refusal(const BudgetRequest& r, int64_t fixed, int64_t needed_pages) {
  const int64_t pool = needed_pages * r.page_bytes;
  const int64_t snapshots = std::max<int64_t>(r.snapshots, r.snapshot_bytes > 0 && r.snapshots == kAutomatic ? 1 : 0) * r.snapshot_bytes;
  const int64_t without_slots = fixed + snapshots + pool;
  const int64_t enough = without_slots + std::max<int64_t>(r.running, 1) * r.slot_bytes;  // for all that is asked for
  if (without_slots + r.slot_bytes > r.memory_bytes) {
    const int64_t left = r.memory_bytes - fixed - snapshots - r.slot_bytes;
    if (left >= r.page_bytes)
      return exhausted(fmt::format(
          "a sequence of {} {} needs {} of pages, and {} is left for them beside weights, workspace and one "
          "slot; lower {} to {} or raise --memory to {}",
          r.context_flag, r.context_tokens, size_text(pool), size_text(left), r.context_flag, left / r.page_bytes * kPageUnits, enough));
    return exhausted(
        fmt::format("weights, workspace, {} snapshots and one slot alone need {}, and --memory allows {}; raise --memory to {}, which has "
                    "room for {} {} and {} {}, too",
                    r.snapshots == kAutomatic ? 1 : r.snapshots, size_text(fixed + snapshots + r.slot_bytes), size_text(r.memory_bytes),
                    enough, r.context_flag, r.context_tokens, r.running_flag, r.running));
  }
  return exhausted(
      fmt::format("{} {} needs {} of slots beside {} for weights, workspace, snapshots and one sequence of {} {}, and --memory allows {}; "
                  "lower {} to {}, or raise --memory to {}",
                  r.running_flag, r.running, size_text(r.running * r.slot_bytes), size_text(without_slots), r.context_flag,
                  r.context_tokens, size_text(r.memory_bytes), r.running_flag, (r.memory_bytes - without_slots) / r.slot_bytes, enough));
}

Occupancy occupancy(int64_t memory, int64_t slot, int64_t pages) {
  return {slot + pages, std::max<int64_t>(memory, 0) / std::max<int64_t>(slot + pages, 1)};
}

}  // namespace

Result<Budget> solve_budget(const BudgetRequest& r) {
  const int64_t fixed = r.weight_bytes + r.workspace_bytes + r.graph_bytes;
  const int64_t slots = r.running * r.slot_bytes;
  const int64_t least_pages = pages_of(r.context_tokens);
  const int64_t least_snapshots = r.snapshots != kAutomatic ? r.snapshots : (r.snapshot_bytes > 0 ? 1 : 0);
  const int64_t shared = r.memory_bytes - fixed - slots;
  if (shared < least_pages * r.page_bytes + least_snapshots * r.snapshot_bytes) return refusal(r, fixed, least_pages);

  Budget b;
  b.slots = r.running;
  if (r.pool_tokens != kAutomatic) {
    const int64_t wanted = pages_of(r.pool_tokens);
    if (wanted < least_pages)
      return Error{Error::Kind::kInvalid,
                   fmt::format("--pool-tokens {} does not hold one sequence of {} {}; raise the one or lower the other", r.pool_tokens,
                               r.context_flag, r.context_tokens)};
    const int64_t left = shared - least_snapshots * r.snapshot_bytes;
    const int64_t most = std::min(left / r.page_bytes, kMostPages);
    if (wanted > most)
      return exhausted(fmt::format("--pool-tokens {} needs {} pages of {}, and {} is left for pages; lower it to {}, or raise --memory",
                                   r.pool_tokens, wanted, size_text(r.page_bytes), size_text(left), most * kPageUnits));
    b.pages = as_count(wanted);
    const int64_t room = r.snapshot_bytes > 0 ? (shared - wanted * r.page_bytes) / r.snapshot_bytes : 0;
    b.snapshots = r.snapshots != kAutomatic ? r.snapshots : as_count(std::min(room, std::max<int64_t>(1, 4 * int64_t{r.running})));
  } else {
    constexpr int64_t kSnapshotShare = 8;
    const int64_t fair = r.snapshot_bytes > 0 ? shared / kSnapshotShare / r.snapshot_bytes : 0;
    const int64_t most = r.snapshot_bytes > 0 ? (shared - least_pages * r.page_bytes) / r.snapshot_bytes : 0;
    b.snapshots =
        as_count(r.snapshots != kAutomatic ? r.snapshots : std::clamp<int64_t>(fair, least_snapshots, std::max<int64_t>(most, 0)));
    b.pages = as_count((shared - b.snapshots * r.snapshot_bytes) / r.page_bytes);
  }

  // Host: as many slots as run at once if they fit beside an equal share of pages.
  if (r.host_bytes > 0) {
    b.host_slots = as_count(std::min<int64_t>(r.running, r.host_bytes / 2 / r.slot_bytes));
    b.host_pages = b.host_slots > 0 ? as_count(std::min<int64_t>(b.pages, (r.host_bytes - b.host_slots * r.slot_bytes) / r.page_bytes)) : 0;
    b.host = {{"retracted slots", b.host_slots, r.slot_bytes}, {"retracted pages", b.host_pages, r.page_bytes}};
  }
  const int64_t slot = r.plain_slot_bytes > 0 ? r.plain_slot_bytes : r.slot_bytes - r.ring_bytes;
  const int64_t page = r.plain_page_bytes > 0 ? r.plain_page_bytes : r.page_bytes;
  b.device = {{"weights", 1, r.weight_bytes},
              {"workspace", 1, r.workspace_bytes},
              {"graphs", 1, r.graph_bytes},
              {"slots", b.slots, slot},
              {"replay rings", b.slots, r.ring_bytes},
              {"drafter, in slots", b.slots, r.slot_bytes - r.ring_bytes - slot},
              {"snapshots", b.snapshots, r.snapshot_bytes},
              {"pages", b.pages, page},
              {"drafter, in pages", b.pages, r.page_bytes - page}};
  b.context_tokens = r.context_tokens;
  b.requests = occupancy(r.memory_bytes - fixed, r.slot_bytes, least_pages * r.page_bytes);
  b.without_drafter = r.plain_slot_bytes > 0 ? occupancy(r.memory_bytes - fixed + r.drafter_bytes, slot, least_pages * page) : b.requests;
  b.memory_bytes = r.memory_bytes;
  b.unused_bytes = r.memory_bytes;
  for (const BudgetLine& l : b.device) b.unused_bytes -= l.bytes();
  return b;
}

std::string Budget::table() const {
  std::string out = fmt::format("device memory {}\n", size_text(memory_bytes));
  append_lines(out, device);
  fmt::format_to(std::back_inserter(out), "  {:<20} {:>40}\n", "unused", size_text(unused_bytes));
  fmt::format_to(std::back_inserter(out), "  a request of {} tokens takes {}, and {} fit at once; without a drafter {}, and {}\n",
                 context_tokens, size_text(requests.bytes_each), requests.fit, size_text(without_drafter.bytes_each), without_drafter.fit);
  if (!host.empty()) {
    out += "host memory\n";
    append_lines(out, host);
  }
  return out;
}

}  // namespace baton::cache
