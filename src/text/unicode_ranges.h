// Ranges of code points, ascending and apart: what the reference tokenizers take for letters, numbers, spaces (Unicode 16).
#pragma once

#include <span>

namespace baton::text {

struct CodeRange {
  char32_t first, last;
};
using CodeRanges = std::span<const CodeRange>;

bool contains(CodeRanges ranges, char32_t code);

CodeRanges letter_ranges();  // \p{L}
CodeRanges number_ranges();  // \p{N}
CodeRanges space_ranges();   // \s
CodeRanges word_ranges();    // \w of the rule "single_word": letters, marks, decimal digits, letter numbers, connectors, joiners

// What Unicode 15 and 16 assigned, with the general category, so that a library with the tables of 14 can be completed. (They also moved
// U+1171E from Mn to Mc, which is left out.)
struct NewRange {
  char32_t first, last;
  const char* category;  // two letters
};
std::span<const NewRange> ranges_since_14();

// What is punctuation, or a mark, and younger than the reference's tables of these.
CodeRanges young_punctuation();
CodeRanges young_marks();

// Characters younger than the reference's normalization tables: it passes them on as they are, and composes and reorders nothing across.
CodeRanges not_normalized();

}  // namespace baton::text
