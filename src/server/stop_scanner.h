// Finds stop strings in a text that arrives in pieces: the first one to be complete, wherever the pieces were cut.
//
// Bytes are compared. One choice; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace baton::server {

class StopScanner {
 public:
  // None is empty.
  explicit StopScanner(std::span<const std::string> stops);
  StopScanner() : StopScanner(std::span<const std::string>{}) {}

  bool empty() const { return patterns_.empty(); }

  // Places in the whole text. Of several that are complete with the same byte, the longest.
  struct Match {
    size_t begin = 0, end = 0;
    size_t stop = 0;  // which of them
  };
  // The next piece; nothing more after a match.
  std::optional<Match> add(std::string_view piece);
  // No stop string can begin before this place any more.
  size_t clear() const { return clear_; }

 private:
  // Knuth, Morris and Pratt: `matched` bytes of the string end where the text ends now.
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // by length: the longest proper prefix that ends there, too
    size_t matched = 0;
    bool step(char c);
  };
  std::vector<Pattern> patterns_;
  size_t seen_ = 0;
  size_t clear_ = 0;
};

}  // namespace baton::server
