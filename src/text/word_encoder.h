// From text without added tokens to ids: cuts words, and merges each or remembers what came of it. One per thread and text at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/bpe_model.h"
#include "text/pretokenizer.h"
#include "text/word_cache.h"

namespace baton::text {

// Ids that are being written; grows by doubling, without asking for each id.
class IdBuffer {
 public:
  // Room for `count` more ids at the returned place.
  int32_t* room(size_t count) {
    if (ids_.size() - used_ < count) [[unlikely]]
      ids_.resize(ids_.size() * 2 + count + 64);
    return ids_.data() + used_;
  }
  void wrote(size_t count) { used_ += count; }
  void append(std::span<const int32_t> ids) {
    std::copy(ids.begin(), ids.end(), room(ids.size()));
    wrote(ids.size());
  }
  std::vector<int32_t> take() {
    ids_.resize(used_);
    used_ = 0;
    return std::move(ids_);
  }

 private:
  std::vector<int32_t> ids_;
  size_t used_ = 0;
};

// Holds a cache that fits one model only.
class WordEncoder {
 public:
  // Appends the ids of `text`, valid UTF-8.
  Status encode(const PreTokenizer& pretokenizer, const BpeModel& model, std::string_view text, IdBuffer& out);

 private:
  template <WordRule kRule>
  void encode_by_rule(const BpeModel& model, std::string_view text, IdBuffer& out);
  void encode_word(const BpeModel& model, const char* word, size_t bytes, size_t readable, IdBuffer& out);
  void encode_new_word(const BpeModel& model, std::string_view word, const WordCache::Key* key, IdBuffer& out);

  WordCache cache_;
  BpeMerger merger_;
  std::vector<int32_t> ids_;
  PreTokenizer::Words words_;
};

}  // namespace baton::text
