// Regular expressions of tokenizer.json, written for Oniguruma, run by PCRE2 with its JIT.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/unicode_ranges.h"

namespace baton::text {

struct TextRange {
  size_t begin = 0, end = 0;  // bytes
};

// The pattern in PCRE2's dialect: \p{L}, \p{N} and \s completed to what Oniguruma's tables say, constructs that mean something else in
// PCRE2 (set operations, nested classes) refused.
Result<std::string> translate_pattern(std::string_view pattern);

// Ranges as members of a character class in a pattern.
std::string class_items(CodeRanges ranges);

// Immutable after compile(); any thread may match. Move-only.
class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // All matches, from left to right and apart; an empty match directly behind another is none. `text` is valid UTF-8. Fails where the
  // pattern needs more steps or memory than a pre-tokenizer should.
  Status find_all(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace baton::text
