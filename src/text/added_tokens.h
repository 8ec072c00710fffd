// Added tokens: texts that become one id wherever they stand, before anything else looks at the text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace baton::text {

struct AddedToken {
  std::string content;
  std::string wanted;  // what is looked for: the content, normalized if `normalized`
  int32_t id = 0;
  bool single_word = false;  // not where a letter, mark or digit touches it
  bool lstrip = false;       // swallows white space on the left
  bool rstrip = false;       // and on the right
  bool normalized = false;   // looked for in normalized text
  bool special = false;      // left out of decoded text on request
};

// Finds tokens in text: leftmost, then longest. Immutable; any thread.
class AddedTokenMatcher {
 public:
  struct Pattern {
    std::string text;  // what is looked for
    const AddedToken* token = nullptr;
  };
  // The tokens must outlive this. Of equal texts the first counts.
  explicit AddedTokenMatcher(const std::vector<Pattern>& patterns);
  AddedTokenMatcher() : AddedTokenMatcher(std::vector<Pattern>{}) {}

  bool empty() const { return tokens_.empty(); }

  struct Match {
    size_t begin = 0,
           end = 0;  // with the white space that it swallows; a match may begin within white space that the previous one swallowed
    const AddedToken* token = nullptr;
  };

  // Appends the matches in `text`. A token must lie in one of the `allowed` ranges (ascending, apart), and swallows white space only there;
  // what stands around a range still decides about single words. With `skip_special`, special tokens are text.
  void find_all(std::string_view text, std::span<const TextRange> allowed, bool skip_special, std::vector<Match>& matches) const;

 private:
  // A trie: the children of a node are sorted by byte and lie side by side.
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t token = -1;  // index into tokens_
  };
  struct Found {
    size_t end = 0;
    const AddedToken* token = nullptr;
  };

  void build(std::vector<Pattern>& patterns);
  Found longest_at(std::string_view text, size_t begin, size_t end) const;

  std::vector<Node> nodes_;
  std::vector<const AddedToken*> tokens_;
  uint32_t by_first_byte_[256] = {};  // child of the root, 0: none
};

}  // namespace baton::text
