#include "router/prompt_blocks.h"

#include <xxhash.h>

#include <algorithm>
#include <array>

namespace baton::router {
namespace {

// In the order in which templates put them into the prompt. Every API has some of them.
constexpr std::array<std::string_view, 8> kMembers{"tools", "system", "instructions", "messages", "prompt", "input", "text", "input_ids"};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // Calls `found(name, value)` for every member of the outermost object, as far as it can be read.
  template <class Found>
  void members(Found found) {
    if (!take('{')) return;
    do {
      skip_space();
      const size_t begin = at_;
      if (!skip_string()) return;
      const std::string_view name = text_.substr(begin + 1, at_ - begin - 2);
      if (!take(':')) return;
      skip_space();
      const size_t value = at_;
      if (!skip_value()) return;
      found(name, text_.substr(value, at_ - value));
    } while (take(','));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool skip_string() {
    if (at_ >= text_.size() || text_[at_] != '"') return false;
    for (++at_;;) {
      at_ = text_.find_first_of("\"\\", at_);
      if (at_ == std::string_view::npos) return at_ = text_.size(), false;
      if (text_[at_] == '"') return ++at_, true;
      at_ += 2;
    }
  }
  bool skip_value() {
    int64_t depth = 0;
    do {
      at_ = depth > 0 ? text_.find_first_of("\"{}[]", at_) : at_;
      if (at_ >= text_.size()) return false;
      const char c = text_[at_];
      if (c == '"') {
        if (!skip_string()) return false;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (--depth < 0) return false;
        ++at_;
      } else {
        at_ = std::min(text_.find_first_of(",}", at_), text_.size());
      }
    } while (depth > 0);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<uint64_t> prompt_blocks(std::string_view body, std::string_view salt) {
  std::array<std::string_view, kMembers.size()> values;
  Scanner(body).members([&](std::string_view name, std::string_view value) {
    const auto* known = std::find(kMembers.begin(), kMembers.end(), name);
    if (known != kMembers.end()) values[static_cast<size_t>(known - kMembers.begin())] = value;
  });
  std::vector<uint64_t> blocks;
  uint64_t hash = XXH3_64bits(salt.data(), salt.size());
  for (size_t i = 0; i < values.size() && blocks.size() < kMostBlocks; ++i) {
    std::string_view value = values[i];
    // Where a member ends, the rest of it is part of what follows.
    for (; value.size() >= kBlockBytes && blocks.size() < kMostBlocks; value.remove_prefix(kBlockBytes)) {
      hash = XXH3_64bits_withSeed(value.data(), kBlockBytes, hash + i);
      blocks.push_back(hash);
    }
    if (!value.empty() && i + 1 < values.size()) hash = XXH3_64bits_withSeed(value.data(), value.size(), hash + i);
  }
  return blocks;
}

}  // namespace baton::router
