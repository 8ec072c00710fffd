#include "engine/hand_over_memory.h"

#include "pd/prefill_end.h"

namespace baton::engine {

transfer::Memory hand_over_memory(const SerialExecutor& executor, const model::CacheLayout& layout, const cache::Budget& budget,
                                  uint64_t fingerprint) {
  using Kind = model::CacheRange::Kind;
  namespace part = pd::slot_part;
  transfer::Memory m{.pages = {executor.pages().base, layout.page_bytes, budget.pages},
                     .slots = {executor.slots().base, layout.slot_bytes, budget.slots},
                     .page_runs = {},
                     .slot_runs = {},
                     .fingerprint = fingerprint};
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const model::CacheRange& r = layout.ranges[i];
    const transfer::Run run{static_cast<uint32_t>(i), 0, r.bytes, r.offset};
    switch (r.kind) {
      case Kind::kPage: m.page_runs.push_back(run); break;
      case Kind::kTail: m.slot_runs.push_back({run, part::kTail}); break;
      case Kind::kState: {
        const bool hidden = r.offset == layout.hidden_offset;
        const bool window = r.offset == layout.drafter_window_offset;
        m.slot_runs.push_back({run, hidden ? part::kHidden : window ? part::kDrafter : part::kState});
        break;
      }
      case Kind::kCycle: break;  // the ring starts empty, and a drafter's part is made good by the next commit
    }
  }
  return m;
}

}  // namespace baton::engine
