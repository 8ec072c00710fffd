// Collects everything wrong with an input, so that one message can name all of it without drowning its reader.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/result.h"

namespace baton::model {

// Names from a file may hold anything; control characters must not reach a terminal.
inline std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return text;
}

class Problems {
 public:
  static constexpr int64_t kListed = 20;  // of each sort; the rest is counted

  // `sort` heads a list, for example "missing tensors"; `text` is one entry of it.
  void add(const std::string& sort, std::string text) {
    Sort& s = find(sort);
    if (++s.count <= kListed) s.listed.push_back(printable(std::move(text)));
  }
  // An entry that is itself the message of another error, several lines perhaps.
  void add_block(const std::string& sort, const std::string& message) {
    Sort& s = find(sort);
    if (++s.count > kListed) return;
    std::string indented;
    for (const char c : message) indented += c == '\n' ? std::string("\n    ") : std::string(1, c);
    s.listed.push_back(std::move(indented));
  }
  bool empty() const { return sorts_.empty(); }

  // "<heading>:", then per sort its name with the count and its entries, one a line.
  Error error(const std::string& heading, Error::Kind kind = Error::Kind::kInvalid) const {
    std::string message = heading + ":";
    for (const Sort& s : sorts_) {
      message += fmt::format("\n  {} ({}):", s.name, s.count);
      for (const std::string& text : s.listed) message += "\n    " + text;
      const int64_t more = s.count - static_cast<int64_t>(s.listed.size());
      if (more > 0) message += fmt::format("\n    and {} more", more);
    }
    return {kind, std::move(message)};
  }

 private:
  struct Sort {
    std::string name;
    int64_t count = 0;
    std::vector<std::string> listed;
  };
  Sort& find(const std::string& name) {
    for (Sort& s : sorts_)
      if (s.name == name) return s;
    return sorts_.emplace_back(Sort{name, 0, {}});
  }

  std::vector<Sort> sorts_;  // in order of first appearance
};

}  // namespace baton::model
