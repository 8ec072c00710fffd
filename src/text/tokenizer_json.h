// Reads tokenizer.json, of which every part must be known, into the parts of a Tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pretokenizer.h"
#include "text/vocabulary.h"

namespace baton::text {

struct TokenizerParts {
  Vocabulary vocabulary;  // with the added tokens
  BpeModel model;
  Normalizer normalizer;
  PreTokenizer pretokenizer;
  PostProcessor post_processor;
  std::vector<AddedToken> added;      // one entry a text, special ones first: among equal normalized texts the first counts
  std::string joiner;                 // stands between decoded tokens; not empty only where the file has no decoder
  std::vector<std::string> warnings;  // what the file says and the reference does not follow
};

// `where` names the text in messages. Nested or sized beyond reason, the text is refused.
Result<TokenizerParts> read_tokenizer_json(std::string_view json, const std::string& where);

}  // namespace baton::text
