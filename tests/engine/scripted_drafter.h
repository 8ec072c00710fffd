// A drafter for tests that knows what will be said, and is right as often as it is told to be.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/drafter_source.h"

namespace baton::testing {

// Shared by the drafters of a test's engines, filled before they run.
struct Script {
  std::vector<std::vector<int32_t>> texts;  // prompts with what follows
  // How many drafts to be right, of `count`, behind the anchor at a position; and how many to make at all.
  std::function<int32_t(int32_t position, int32_t count)> right;
  std::function<int32_t(int32_t position, int32_t count)> made;
  std::vector<uint64_t> seeds{};  // of the texts' requests; empty: the first text that has the anchor in its place will do
};

class ScriptedDrafter final : public model::Drafter {
 public:
  ScriptedDrafter(const model::DrafterNeeds& needs, const Script& script, int64_t vocabulary)
      : needs_(needs), script_(script), vocabulary_(static_cast<int32_t>(vocabulary)) {}

  const model::DrafterNeeds& needs() const override { return needs_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t workspace_bytes() const override { return 0; }

  // Each row once and in order, by its place alone; the engine's part of the contract.
  void commit(const model::CommitInput& input) override {
    for (const ops::SequenceRows& s : input.sequences) {
      auto* const count = reinterpret_cast<int32_t*>(input.rows.slots.slot(s.slot) + offset_);
      if (*count != 0) {
        EXPECT_EQ(*count, s.position) << "rows were left out, or came twice";
      }
      *count = s.position + s.row_count;
      for (int32_t i = 0; i < s.row_count; ++i) EXPECT_EQ(input.rows.batch.positions[s.row_begin + i], s.position + i);
      for (int32_t i = 0; i < s.row_count; ++i) EXPECT_LT(input.next_ids[s.row_begin + i], vocabulary_);
    }
  }

  void draft(const model::DraftInput& input, int32_t* ids, int64_t stride) override {
    for (size_t i = 0; i < input.sequences.size(); ++i) {
      const int32_t at = input.sequences[i].position;
      EXPECT_EQ(*reinterpret_cast<const int32_t*>(input.rows.slots.slot(input.sequences[i].slot) + offset_), at);
      const int32_t count = input.counts[i];
      if (i > 0) {
        EXPECT_LE(count, input.counts[i - 1]);
      }
      const int32_t right = script_.right(at, count);
      const int32_t made = script_.made ? script_.made(at, count) : count;
      const std::vector<int32_t>* text = find(at, input.anchors[i], input.sampling[i].seed);
      for (int32_t k = 0; k < count; ++k) {
        const auto next = static_cast<size_t>(at + 1 + k);
        const int32_t token = text != nullptr && next < text->size() ? (*text)[next] : 0;
        ids[static_cast<int64_t>(i) * stride + k] = k >= made ? -1 : k < right ? token : (token + 1 + k) % vocabulary_;
      }
    }
  }
  void place(int64_t offset) { offset_ = offset; }

 private:
  const std::vector<int32_t>* find(int32_t at, int32_t anchor, uint64_t seed) const {
    for (size_t i = 0; i < script_.texts.size(); ++i) {
      const auto& text = script_.texts[i];
      if (!script_.seeds.empty() && script_.seeds[i] != seed) continue;
      if (static_cast<size_t>(at) < text.size() && text[static_cast<size_t>(at)] == anchor) return &text;
    }
    return nullptr;
  }

  model::DrafterNeeds needs_;
  const Script& script_;
  int32_t vocabulary_;
  int64_t offset_ = 0;  // in a slot: rows that were committed; 0 as well where that is not known
};

inline engine::DrafterSource scripted(const Script& script, int32_t drafts = 7) {
  engine::DrafterSource source;
  source.name = "scripted";
  source.needs.most_drafts = drafts;
  source.needs.slot_bytes = sizeof(int32_t);
  source.load = [needs = source.needs, &script](model::Glm5Next& target, ops::Backend&,
                                                int64_t vocabulary) -> Result<std::unique_ptr<model::Drafter>> {
    auto drafter = std::make_unique<ScriptedDrafter>(needs, script, vocabulary);
    drafter->place(target.cache_layout().drafter_slot_offset);
    return std::unique_ptr<model::Drafter>(std::move(drafter));
  };
  return source;
}

}  // namespace baton::testing
