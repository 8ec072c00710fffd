// Cutting text at matches of a pattern, with the behaviours that tokenizer.json names.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace baton::text {

class JsonComponent;

enum class SplitBehavior {
  kRemoved,             // matches vanish
  kIsolated,            // matches and what lies between are pieces
  kMergedWithPrevious,  // a match ends the piece before it
  kMergedWithNext,      // a match begins the piece behind it
  kContiguous           // adjacent matches are one piece
};

// What is looked for: a pattern, a text, or single characters of a kind.
using SplitPattern = std::variant<Regex, std::string, bool (*)(char32_t)>;

// The field "pattern" of a component: {"Regex": ...} or {"String": ...}.
Result<SplitPattern> read_pattern(const JsonComponent& c);

// Where a pattern is found, from left to right.
Status find_matches(const SplitPattern& pattern, std::string_view text, std::vector<TextRange>& matches);

struct Split {
  SplitPattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches and gaps change places

  // Appends the pieces of `text` (valid UTF-8, not empty), none of them empty; they point into it.
  Status apply(std::string_view text, std::vector<std::string_view>& pieces) const;
};

}  // namespace baton::text
