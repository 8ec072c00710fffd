#include "text/added_tokens.h"

#include <algorithm>
#include <deque>

#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

bool begins_with(std::string_view text, uint8_t wanted) {
  if (text.empty()) return false;
  const Utf8Char c = read_char(text.data(), text.data() + text.size());
  return c.valid && (UnicodeClasses::get().of(c.code) & wanted) != 0;
}

// Where the last character begins; text is not empty.
size_t last_char(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && is_continuation(text[at])) --at;
  return at;
}

bool ends_with(std::string_view text, uint8_t wanted) { return !text.empty() && begins_with(text.substr(last_char(text)), wanted); }

size_t spaces_at_front(std::string_view text) {
  size_t at = 0;
  while (begins_with(text.substr(at), kSpace)) at += read_char(text.data() + at, text.data() + text.size()).bytes;
  return at;
}

size_t without_spaces_at_end(std::string_view text) {
  while (ends_with(text, kSpace)) text = text.substr(0, last_char(text));
  return text.size();
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<Pattern>& patterns) {
  std::vector<Pattern> sorted = patterns;
  std::erase_if(sorted, [](const Pattern& p) { return p.text.empty(); });
  std::stable_sort(sorted.begin(), sorted.end(), [](const Pattern& a, const Pattern& b) { return a.text < b.text; });
  sorted.erase(std::unique(sorted.begin(), sorted.end(), [](const Pattern& a, const Pattern& b) { return a.text == b.text; }),
               sorted.end());
  build(sorted);
}

void AddedTokenMatcher::build(std::vector<Pattern>& patterns) {
  // Breadth first, so that children lie side by side. An open node covers the sorted patterns [begin, end) that share `depth` bytes.
  struct Open {
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::deque<Open> open{{0, 0, patterns.size(), 0}};
  while (!open.empty()) {
    Open o = open.front();
    open.pop_front();
    if (o.begin < o.end && patterns[o.begin].text.size() == o.depth) {
      nodes_[o.node].token = static_cast<int32_t>(tokens_.size());
      tokens_.push_back(patterns[o.begin].token);
      ++o.begin;
    }
    nodes_[o.node].first_child = static_cast<uint32_t>(nodes_.size());
    for (size_t i = o.begin; i < o.end;) {
      const char byte = patterns[i].text[o.depth];
      size_t j = i;
      while (j < o.end && patterns[j].text[o.depth] == byte) ++j;
      open.push_back({static_cast<uint32_t>(nodes_.size()), i, j, o.depth + 1});
      nodes_.push_back({0, 0, static_cast<uint8_t>(byte), -1});
      ++nodes_[o.node].children;
      i = j;
    }
  }
  for (uint32_t c = 0; c < nodes_[0].children; ++c) by_first_byte_[nodes_[nodes_[0].first_child + c].byte] = nodes_[0].first_child + c;
}

AddedTokenMatcher::Found AddedTokenMatcher::longest_at(std::string_view text, size_t begin, size_t end) const {
  Found found;
  uint32_t node = by_first_byte_[static_cast<uint8_t>(text[begin])];
  for (size_t at = begin + 1; node != 0; ++at) {
    if (nodes_[node].token >= 0) found = {at, tokens_[static_cast<size_t>(nodes_[node].token)]};
    if (at == end) break;
    const Node* first = nodes_.data() + nodes_[node].first_child;
    const Node* last = first + nodes_[node].children;
    const auto byte = static_cast<uint8_t>(text[at]);
    const Node* child = std::lower_bound(first, last, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
    node = child != last && child->byte == byte ? static_cast<uint32_t>(child - nodes_.data()) : 0;
  }
  return found;
}

void AddedTokenMatcher::find_all(std::string_view text, std::span<const TextRange> allowed, bool skip_special,
                                 std::vector<Match>& matches) const {
  if (empty()) return;
  size_t taken = 0;  // everything before belongs to a match
  for (const TextRange& range : allowed) {
    for (size_t at = range.begin; at < range.end;) {
      if (by_first_byte_[static_cast<uint8_t>(text[at])] == 0) {
        ++at;
        continue;
      }
      const Found found = longest_at(text, at, range.end);
      if (found.token == nullptr) {
        ++at;
        continue;
      }
      Match match{at, found.end, found.token};
      // The reference goes on behind a match also when it then discards it.
      at = found.end;
      const AddedToken& token = *found.token;
      if (skip_special && token.special) continue;
      if (token.single_word && (ends_with(text.substr(0, match.begin), kWordPart) || begins_with(text.substr(match.end), kWordPart)))
        continue;
      if (token.lstrip) {
        const size_t least = std::max(range.begin, std::min(taken, match.begin));
        match.begin = least + without_spaces_at_end(text.substr(least, match.begin - least));
      }
      if (token.rstrip) match.end += spaces_at_front(text.substr(match.end, range.end - match.end));
      matches.push_back(match);
      taken = match.end;
    }
  }
}

}  // namespace baton::text
