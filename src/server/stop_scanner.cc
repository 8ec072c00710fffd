#include "server/stop_scanner.h"

#include <algorithm>

namespace baton::server {

StopScanner::StopScanner(std::span<const std::string> stops) {
  for (const std::string& stop : stops) {
    Pattern p{.text = stop, .border = std::vector<uint32_t>(stop.size() + 1, 0)};
    for (size_t length = 2; length <= stop.size(); ++length) {
      uint32_t k = p.border[length - 1];
      while (k > 0 && stop[k] != stop[length - 1]) k = p.border[k];
      p.border[length] = stop[k] == stop[length - 1] ? k + 1 : 0;
    }
    patterns_.push_back(std::move(p));
  }
}

bool StopScanner::Pattern::step(char c) {
  while (matched > 0 && text[matched] != c) matched = border[matched];
  if (text[matched] == c) ++matched;
  return matched == text.size();
}

std::optional<StopScanner::Match> StopScanner::add(std::string_view piece) {
  for (const char c : piece) {
    ++seen_;
    std::optional<Match> match;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (!patterns_[i].step(c)) continue;
      const size_t begin = seen_ - patterns_[i].text.size();
      if (!match || begin < match->begin) match = Match{begin, seen_, i};
    }
    if (match) {
      clear_ = match->begin;
      return match;
    }
  }
  size_t held = 0;
  for (const Pattern& p : patterns_) held = std::max(held, p.matched);
  clear_ = seen_ - held;
  return std::nullopt;
}

}  // namespace baton::server
