// Any bytes as tokenizer.json: refused with a message, or a tokenizer that encodes and decodes without harm. What stands behind the first
// zero byte is the text to encode.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

using baton::text::AddedTokens;
using baton::text::Tokenizer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  const auto tokenizer = Tokenizer::parse(input.substr(0, zero), "fuzz");
  if (!tokenizer.ok()) {
    if (tokenizer.error().message.empty()) std::abort();
    return 0;
  }
  const std::string text = zero < size ? input.substr(zero + 1) : "ab <x> ab\n\xC3\xA9";
  for (const AddedTokens use : {AddedTokens::kAll, AddedTokens::kNotSpecial, AddedTokens::kNone}) {
    const baton::text::TextRange middle{text.size() / 3, text.size() / 2};
    const auto ids = tokenizer->encode(text, {.added_tokens = use, .add_special_tokens = true}, {&middle, 1});
    if (!ids.ok()) continue;
    baton::text::Detokenizer stream(*tokenizer);
    std::string joined;
    for (const int32_t id : *ids) stream.add(id, joined);
    stream.finish(joined);
    if (joined != tokenizer->decode(*ids) || !baton::text::valid_utf8(joined)) std::abort();
  }
  return 0;
}
