// A template cut into tokens: text between tags, and what stands inside of them. White space around tags is settled here (trim_blocks and
// lstrip_blocks are on, as chat templates expect), raw blocks and comments are gone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::text::jinja {

struct Token {
  enum class Kind : uint8_t { kData, kOutputBegin, kOutputEnd, kTagBegin, kTagEnd, kName, kString, kInteger, kFloat, kOperator, kEnd };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;  // of kString: without quotes and escapes; of numbers: without underscores
};

// Line ends become LF, and one at the very end goes, as jinja2 has it.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace baton::text::jinja
