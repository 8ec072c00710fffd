// The model of tokenizer.json: which ids a word of bytes has.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/bpe_merge.h"
#include "text/json_component.h"
#include "text/vocabulary.h"

namespace baton::text {

// Immutable; any thread.
class BpeModel {
 public:
  // Reads "vocab" into `vocabulary` and the rest into the result.
  static Result<BpeModel> from_json(const JsonComponent& model, Vocabulary& vocabulary);

  // The ids of one word, instead of what `ids` held. Bytes that the vocabulary lacks become the unknown token or vanish.
  void encode(std::string_view word, BpeMerger& merger, std::vector<int32_t>& ids) const;

 private:
  Status read_merges(const JsonComponent& model, const Vocabulary& vocabulary);
  Status read_unknown(const JsonComponent& model, const Vocabulary& vocabulary);

  std::array<int32_t, 256> byte_ids_{};  // -1: not in the vocabulary
  int32_t unknown_id_ = -1;
  bool fuse_unknown_ = false;
  MergeTable merges_;
  // With ignore_merges: words that are tokens although merges may lead elsewhere.
  bool ignore_merges_ = false;
  std::unordered_map<std::string, int32_t> words_;
  size_t longest_word_ = 0;
};

}  // namespace baton::text
