// What a drafter needs of its target: known from configurations alone, before weights are loaded.
#pragma once

#include <cstdint>
#include <vector>

namespace baton::model {

struct DrafterNeeds {
  int32_t most_drafts = 0;              // per sequence and cycle; 0: nobody drafts
  std::vector<int64_t> feature_layers;  // decoder layers, 0-based and ascending, whose outputs it reads: each the mean of the streams
  int64_t page_bytes = 0;               // of its own in each page: CacheLayout::drafter_page_offset
  int64_t window_bytes = 0;             // in each slot, part of snapshots: drafter_window_offset
  int64_t slot_bytes = 0;         // in each slot; a snapshot lacks them, and commit() of the next row makes them good: drafter_slot_offset
  bool reads_next_token = false;  // what it writes for a row depends on the token after it
};

}  // namespace baton::model
