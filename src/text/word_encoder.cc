#include "text/word_encoder.h"

#include <algorithm>

namespace baton::text {
namespace {

constexpr size_t kKeptIds = 1 << 16;  // working memory beyond this is given back

}  // namespace

inline void WordEncoder::encode_word(const BpeModel& model, const char* word, size_t bytes, size_t readable, IdBuffer& out) {
  if (bytes > WordCache::kLongestWord) return encode_new_word(model, {word, bytes}, nullptr, out);
  const WordCache::Key key = WordCache::key_of(word, bytes, readable);
  const WordCache::Ids* known = cache_.find(key);
  if (known == nullptr) [[unlikely]]
    return encode_new_word(model, {word, bytes}, &key, out);
  // All four are written, as many as there are count: no branch on their number.
  std::memcpy(out.room(WordCache::kMostIds), known->id, sizeof known->id);
  out.wrote(known->count());
}

void WordEncoder::encode_new_word(const BpeModel& model, std::string_view word, const WordCache::Key* key, IdBuffer& out) {
  model.encode(word, merger_, ids_);
  if (key != nullptr && !ids_.empty() && ids_.size() <= WordCache::kMostIds) cache_.insert(*key, ids_.data(), ids_.size());
  out.append(ids_);
}

template <WordRule kRule>
void WordEncoder::encode_by_rule(const BpeModel& model, std::string_view text, IdBuffer& out) {
  const WordScanner<kRule> scanner(text);
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* const next = scanner.next(p);
    encode_word(model, p, static_cast<size_t>(next - p), static_cast<size_t>(end - p), out);
    p = next;
  }
}

Status WordEncoder::encode(const PreTokenizer& pretokenizer, const BpeModel& model, std::string_view text, IdBuffer& out) {
  if (text.empty()) return {};
  if (const auto rule = pretokenizer.word_rule()) {
    switch (*rule) {
      case WordRule::kTriples: encode_by_rule<WordRule::kTriples>(model, text, out); break;
      case WordRule::kSingles: encode_by_rule<WordRule::kSingles>(model, text, out); break;
      case WordRule::kGpt2: encode_by_rule<WordRule::kGpt2>(model, text, out); break;
    }
  } else {
    BATON_TRY(pretokenizer.split(text, words_));
    for (const std::string_view word : words_.words) encode_word(model, word.data(), word.size(), word.size(), out);
  }
  if (ids_.capacity() > kKeptIds) ids_ = {};
  if (words_.words.capacity() > kKeptIds) words_ = {};
  return {};
}

}  // namespace baton::text
