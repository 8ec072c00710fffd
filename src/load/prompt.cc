#include "load/prompt.h"

#include <array>
#include <charconv>
#include <numeric>
#include <string_view>

#include "base/random.h"

namespace baton::load {
namespace {

constexpr std::array<std::string_view, 64> kWords = {
    "the",  "of",   "and",   "to",    "in",   "is",   "you",   "that", "it",    "he",   "was",   "for",  "on",    "are",  "as",    "with",
    "his",  "they", "at",    "be",    "this", "have", "from",  "or",   "one",   "had",  "by",    "word", "but",   "not",  "what",  "all",
    "were", "we",   "when",  "your",  "can",  "said", "there", "use",  "an",    "each", "which", "she",  "do",    "how",  "their", "if",
    "will", "up",   "other", "about", "out",  "many", "then",  "them", "these", "so",   "some",  "her",  "would", "make", "like",  "him"};

// Draw `index` of a key. A block of the generator has four of them.
class Draws {
 public:
  explicit Draws(uint64_t key) : key_(key) {}
  uint32_t next() {
    if (used_ == block_.size()) {
      block_ = philox(key_, {static_cast<uint32_t>(count_), static_cast<uint32_t>(count_ >> 32), 0, 0});
      ++count_;
      used_ = 0;
    }
    return block_[used_++];
  }

 private:
  uint64_t key_;
  uint64_t count_ = 0;
  PhiloxBlock block_{};
  size_t used_ = 4;
};

}  // namespace

int64_t Prompt::tokens() const {
  return std::accumulate(stretches.begin(), stretches.end(), int64_t{0}, [](int64_t sum, const Stretch& s) { return sum + s.tokens; });
}

uint64_t key_of(uint64_t parent, uint64_t index) {
  const PhiloxBlock b = philox(parent, {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0x6B6579, 0});
  return uint64_t{b[0]} << 32 | b[1];
}

std::string ids_json(const Prompt& prompt, const Vocabulary& vocabulary) {
  std::string out = "[";
  out.reserve(static_cast<size_t>(prompt.tokens()) * 6 + 2);
  std::array<char, 12> digits{};
  for (const Stretch& s : prompt.stretches) {
    Draws draws(s.key);
    for (int64_t i = 0; i < s.tokens; ++i) {
      // The high half of a product is uniform enough: the bias is below count / 2^32.
      const uint64_t id =
          static_cast<uint64_t>(vocabulary.first) + (uint64_t{draws.next()} * static_cast<uint64_t>(vocabulary.count) >> 32);
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), id).ptr;
      out.append(digits.data(), end);
      out += ',';
    }
  }
  if (out.size() > 1) out.pop_back();
  return out += ']';
}

std::string words_of(const Stretch& stretch) {
  std::string out;
  out.reserve(static_cast<size_t>(stretch.tokens) * 5);
  Draws draws(stretch.key);
  for (int64_t i = 0; i < stretch.tokens; ++i) {
    if (i > 0) out += ' ';
    out += kWords[draws.next() % kWords.size()];
  }
  return out;
}

std::string text_of(const Prompt& prompt) {
  if (prompt.stretches.empty()) return prompt.text;
  std::string out;
  for (const Stretch& s : prompt.stretches) {
    if (s.tokens == 0) continue;
    if (!out.empty()) out += ' ';
    out += words_of(s);
  }
  return out;
}

}  // namespace baton::load
