#include "text/unicode_classes.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "text/unicode_ranges.h"

namespace baton::text {

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

UnicodeClasses::UnicodeClasses() {
  std::vector<uint8_t> all(kCodePoints);
  const auto mark = [&](CodeRanges ranges, uint8_t bit) {
    for (const CodeRange& r : ranges)
      for (char32_t c = r.first; c <= r.last; ++c) all[c] |= bit;
  };
  mark(letter_ranges(), kLetter);
  mark(number_ranges(), kNumber);
  mark(space_ranges(), kSpace);
  mark(word_ranges(), kWordPart);
  all['\r'] |= kNewline;
  all['\n'] |= kNewline;

  constexpr size_t kBlock = kBlockMask + 1;
  std::map<std::string, uint32_t> seen;
  std::string table;
  for (size_t b = 0; b < kCodePoints >> kBlockBits; ++b) {
    std::string block(all.begin() + static_cast<std::ptrdiff_t>(b * kBlock), all.begin() + static_cast<std::ptrdiff_t>((b + 1) * kBlock));
    const auto [at, added] = seen.try_emplace(block, static_cast<uint32_t>(table.size()));
    if (added) table += block;
    block_[b] = at->second;
  }
  table_ = std::make_unique<uint8_t[]>(table.size());
  std::memcpy(table_.get(), table.data(), table.size());
}

}  // namespace baton::text
