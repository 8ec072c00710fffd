// The common word patterns by hand: what PCRE2 does for them, many times faster. word_scanner_test.cc holds them against PCRE2.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <optional>
#include <string_view>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace baton::text {

enum class WordRule {
  kTriples,  // GLM-4, Llama 3: digits in groups of up to three
  kSingles,  // Qwen 2: each digit alone
  kGpt2      // the ByteLevel pre-tokenizer's own
};

// The rule that a pattern states, if it is one of them.
std::optional<WordRule> word_rule_of(std::string_view pattern);
std::string_view pattern_of(WordRule rule);

// Finds where words end in one text, which is valid UTF-8. Every byte of it belongs to a word.
template <WordRule kRule>
class WordScanner {
 public:
  explicit WordScanner(std::string_view text) : end_(text.data() + text.size()), classes_(UnicodeClasses::get()) {}

  // The end of the word that begins at `p`; p < end of the text.
  const char* next(const char* p) const {
    const Peek first = peek(p);
    if (first.is(kLetter)) return letters(first.next);
    // One branch for the most frequent of all words: a space and ASCII letters.
    if (*p == ' ' && first.next < end_ && is_ascii_letter(*first.next)) return letters(first.next + 1);
    if (*p == '\'')
      if (const char* e = contraction(p)) return e;
    if constexpr (kRule == WordRule::kGpt2) {
      if (*p == ' ' && first.next < end_) {
        const Peek second = peek(first.next);
        if (!second.is(kSpace)) return run_of_same(second);
      }
      if (!first.is(kSpace)) return run_of_same(first);
      return spaces(p, first);
    } else {
      if (first.is(kNumber)) return kRule == WordRule::kSingles ? first.next : up_to_three_numbers(first.next);
      if (first.next < end_) {
        const Peek second = peek(first.next);
        // [^\r\n\p{L}\p{N}]?\p{L}+
        if (!first.is(kNewline) && second.is(kLetter)) return letters(second.next);
        //  ?[^\s\p{L}\p{N}]+[\r\n]*
        if (*p == ' ' && second.is_other()) return others_and_newlines(second.next);
      }
      if (first.is_other()) return others_and_newlines(first.next);
      return spaces(p, first);
    }
  }

 private:
  struct Peek {
    uint8_t classes = 0;
    const char* next = nullptr;
    bool is(uint8_t wanted) const { return (classes & wanted) != 0; }
    bool is_other() const { return !is(kLetter | kNumber | kSpace); }
  };

  Peek peek(const char* p) const {
    const auto byte = static_cast<uint8_t>(*p);
    if (byte < 0x80) return {classes_.of_ascii(byte), p + 1};
    const char32_t code = read_valid_char(p);
    return {classes_.of(code), p};
  }

  static bool is_ascii_letter(char c) { return static_cast<uint8_t>((c | 0x20) - 'a') < 26; }

  const char* letters(const char* p) const {
    while (true) {
      // 32 bytes at once: most words end within the first look, and no loop is there to be mispredicted.
      while (end_ - p >= 32) {
        const __m256i bytes = _mm256_or_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_set1_epi8(0x20));
        // Unsigned "<= 25" after moving 'a' to zero.
        const __m256i moved = _mm256_sub_epi8(bytes, _mm256_set1_epi8('a'));
        const __m256i inside = _mm256_cmpeq_epi8(_mm256_min_epu8(moved, _mm256_set1_epi8(25)), moved);
        const auto outside = ~static_cast<uint32_t>(_mm256_movemask_epi8(inside));
        if (outside != 0) {
          p += std::countr_zero(outside);
          break;
        }
        p += 32;
      }
      while (p < end_ && is_ascii_letter(*p)) ++p;
      if (p == end_ || static_cast<uint8_t>(*p) < 0x80) return p;
      // Other scripts come in runs, too.
      do {
        const Peek c = peek(p);
        if (!c.is(kLetter)) return p;
        p = c.next;
      } while (p < end_ && static_cast<uint8_t>(*p) >= 0x80);
    }
  }

  const char* up_to_three_numbers(const char* p) const {
    for (int n = 1; n < 3 && p < end_; ++n) {
      const Peek c = peek(p);
      if (!c.is(kNumber)) break;
      p = c.next;
    }
    return p;
  }

  const char* others_and_newlines(const char* p) const {
    while (p < end_) {
      const Peek c = peek(p);
      if (!c.is_other()) break;
      p = c.next;
    }
    while (p < end_ && (*p == '\r' || *p == '\n')) ++p;
    return p;
  }

  // GPT-2: a run of letters, of numbers, or of anything else that is no space.
  const char* run_of_same(Peek c) const {
    constexpr uint8_t kKinds = kLetter | kNumber | kSpace;
    const uint8_t kind = c.classes & kKinds;
    const char* p = c.next;
    while (p < end_) {
      c = peek(p);
      if ((c.classes & kKinds) != kind) break;
      p = c.next;
    }
    return p;
  }

  // \s*[\r\n]+ (not in GPT-2's rule), then \s+(?!\S), then \s+
  const char* spaces(const char* begin, Peek c) const {
    const char* p = begin;
    const char* last = begin;              // where the last character of the run begins
    const char* behind_newline = nullptr;  // behind the last CR or LF of the run
    while (true) {
      last = p;
      p = c.next;
      if (c.is(kNewline)) behind_newline = p;
      if (p == end_) break;
      c = peek(p);
      if (!c.is(kSpace)) break;
    }
    if (kRule != WordRule::kGpt2 && behind_newline != nullptr) return behind_newline;
    return p == end_ || last == begin ? p : last;
  }

  // 's 't 're 've 'm 'll 'd; without regard to case except in GPT-2's rule, and then U+017F (long s) is an s.
  const char* contraction(const char* p) const {
    const auto letter = [&](int i) -> char {
      if (end_ - p <= i) return 0;
      return kRule == WordRule::kGpt2 ? p[i] : static_cast<char>(is_ascii_letter(p[i]) ? p[i] | 0x20 : p[i]);
    };
    const char a = letter(1);
    switch (a) {
      case 's':
      case 't':
      case 'm':
      case 'd': return p + 2;
      case 'r':
      case 'v': return letter(2) == 'e' ? p + 3 : nullptr;
      case 'l': return letter(2) == 'l' ? p + 3 : nullptr;
      default: break;
    }
    if (kRule != WordRule::kGpt2 && end_ - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return p + 3;
    return nullptr;
  }

  const char* end_;
  const UnicodeClasses& classes_;
};

}  // namespace baton::text
