#include "text/word_scanner.h"

#include <array>

namespace baton::text {
namespace {

struct Known {
  std::string_view pattern;
  WordRule rule;
};

// The first of a rule is its canonical form; the others are spellings in the wild that mean the same.
constexpr std::array kKnown = {
    Known{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          WordRule::kTriples},
    Known{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          WordRule::kSingles},
    Known{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", WordRule::kGpt2},
    Known{R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          WordRule::kTriples},
};

}  // namespace

std::optional<WordRule> word_rule_of(std::string_view pattern) {
  for (const Known& k : kKnown)
    if (k.pattern == pattern) return k.rule;
  return std::nullopt;
}

std::string_view pattern_of(WordRule rule) {
  for (const Known& k : kKnown)
    if (k.rule == rule) return k.pattern;
  return {};
}

}  // namespace baton::text
