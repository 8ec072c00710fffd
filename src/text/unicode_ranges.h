// Ranges of code points, ascending and apart: what the reference tokenizers take for letters, numbers, spaces (Unicode 16).
#pragma once

#include <span>

namespace baton::text {

struct CodeRange {
  char32_t first, last;
};
using CodeRanges = std::span<const CodeRange>;

CodeRanges letter_ranges();  // \p{L}
CodeRanges number_ranges();  // \p{N}
CodeRanges space_ranges();   // \s
CodeRanges word_ranges();    // \w of the rule "single_word": letters, marks, decimal digits, letter numbers, connectors, joiners

// What \p{L} and \p{N} gained after Unicode 14, so that a library with those tables can be completed. Nothing ever left them.
CodeRanges letters_since_14();
CodeRanges numbers_since_14();

// Characters younger than the reference's normalization tables: it passes them on as they are, and composes and reorders nothing across.
CodeRanges not_normalized();

}  // namespace baton::text
