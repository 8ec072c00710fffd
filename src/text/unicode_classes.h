// Letter, number, space, word character or none of them: the classes that pre-tokenizers and added tokens ask for, by table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace baton::text {

enum CharClass : uint8_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,     // CR and LF as well
  kNewline = 8,   // CR and LF only
  kWordPart = 16  // what makes "single_word" say no
};

class UnicodeClasses {
 public:
  // The one table, made on first use. Any thread.
  static const UnicodeClasses& get();

  // CharClass bits of a code point; 0 beyond U+10FFFF.
  uint8_t of(char32_t code) const { return code < kCodePoints ? table_[block_[code >> kBlockBits] + (code & kBlockMask)] : 0; }
  uint8_t of_ascii(uint8_t byte) const { return table_[byte]; }  // block 0 comes first

 private:
  static constexpr char32_t kCodePoints = 0x110000;
  static constexpr int kBlockBits = 8;
  static constexpr char32_t kBlockMask = (1 << kBlockBits) - 1;

  UnicodeClasses();

  uint32_t block_[kCodePoints >> kBlockBits];  // where a block of 256 code points begins in the table; equal blocks are stored once
  std::unique_ptr<uint8_t[]> table_;
};

}  // namespace baton::text
