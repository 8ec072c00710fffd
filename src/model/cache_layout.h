// Byte layout of a page and of a slot (ARCHITECTURE.md, memory objects). The cache rooms move these bytes without knowing what they mean.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/drafter_needs.h"
#include "ops/indexer.h"
#include "ops/kda.h"
#include "ops/mla_sparse.h"

namespace baton::model {

struct CacheTypes {
  DType activation = DType::kF32;  // conv window, tail ring, replay ring, last hidden row
  DType state = DType::kF32;       // kF32, kBF16
  DType latent = DType::kF32;      // kF32, kBF16, kF8E4M3
  DType index = DType::kF32;       // kF32, kBF16, kF8E4M3
  int32_t verify_rows = 8;         // largest number of rows that may be rejected: sizes the replay ring and the tail ring
  bool mtp = true;                 // rows of the MTP layer in pages and slots; false where nobody drafts with it
};

// What the bytes are for, as far as their owner must know: see cache/registry.h, whose lifetimes these become.
struct CacheRange {
  enum class Kind : uint8_t { kPage, kTail, kState, kCycle };
  Kind kind;
  int64_t offset;  // in the page (kPage) or in the slot
  int64_t bytes;
};

// Page: 64 tokens, all sparse layers (the MTP layer last), per layer the latent rows and its own pooled index rows; a drafter's part.
// Slot: one per request; KDA states and windows, tail rings, last hidden row, a drafter's parts, fold count, replay rings.
struct CacheLayout {
  int64_t page_bytes = 0;                 // multiple of 256
  int64_t slot_bytes = 0;                 // multiple of 256, replay rings included
  int64_t ring_bytes = 0;                 // of which replay rings
  std::vector<ops::LatentLayout> latent;  // per sparse layer in order, MTP last
  std::vector<ops::IndexerLayout> index;  // likewise
  std::vector<ops::KdaSlotLayout> kda;    // per KDA layer in order
  int64_t hidden_offset = 0;              // [hidden_size] of activation: final hidden row of the last token
  int64_t fold_count_offset = 0;          // int32: ring rows that the next cycle folds first
  int64_t drafter_page_offset = 0;        // in a page; what the drafter asked for
  int64_t drafter_window_offset = 0;      // in a slot, likewise
  int64_t drafter_slot_offset = 0;        // likewise
  std::vector<CacheRange> ranges;         // of page and slot, in order
};

CacheLayout plan_cache(const Config& config, const CacheTypes& types, const DrafterNeeds& drafter = {});

}  // namespace baton::model
