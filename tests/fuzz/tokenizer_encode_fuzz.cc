// Any bytes as text for a tokenizer with the common parts: the hand-written word rule agrees with its pattern, untrusted text is never an
// added token, and pieces of decoded text add up.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

using baton::text::AddedTokens;
using baton::text::Tokenizer;

namespace {

constexpr std::string_view kTokenizer = R"json({
  "added_tokens": [
    {"id": 8, "content": "<x>", "special": true},
    {"id": 9, "content": "<x>y", "lstrip": true, "rstrip": true, "normalized": false},
    {"id": 10, "content": "word", "single_word": true, "normalized": true}],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "unk_token": "?", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3, "\u0120": 4, "\u0120a": 5, "?": 6, "\u010a": 7},
            "merges": ["a b", "ab ab", "\u0120 a"]}})json";

Tokenizer make() {
  auto tokenizer = Tokenizer::parse(kTokenizer, "fuzz");
  if (!tokenizer.ok()) std::abort();
  return std::move(*tokenizer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer fast = make();
  static const Tokenizer by_pattern = [] {
    Tokenizer t = make();
    t.use_pattern_only();
    return t;
  }();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto ids = fast.encode(text), same = by_pattern.encode(text);
  if (!ids.ok()) std::abort();
  if (same.ok() && *ids != *same) std::abort();
  const baton::text::TextRange all{0, size};
  const auto plain = fast.encode(text, {}, {&all, 1});
  if (!plain.ok()) std::abort();
  for (const int32_t id : *plain)
    if (fast.is_added(id)) std::abort();
  baton::text::Detokenizer stream(fast);
  std::string joined;
  for (const int32_t id : *ids) stream.add(id, joined);
  stream.finish(joined);
  if (joined != fast.decode(*ids) || !baton::text::valid_utf8(joined)) std::abort();
  return 0;
}
