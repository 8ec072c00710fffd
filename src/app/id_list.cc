#include "app/id_list.h"

#include <fmt/format.h>

#include <charconv>

namespace baton::app {

Result<std::vector<int32_t>> parse_id_list(std::string_view text, const std::string& where) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto trim = [&](std::string_view s) {
    const size_t first = s.find_first_not_of(kSpace);
    return first == std::string_view::npos ? std::string_view() : s.substr(first, s.find_last_not_of(kSpace) - first + 1);
  };
  text = trim(text);
  if (text.starts_with('[') && text.ends_with(']')) text = trim(text.substr(1, text.size() - 2));
  std::vector<int32_t> ids;
  while (!text.empty()) {
    if (text.front() == ',')
      return Error{Error::Kind::kInvalid, fmt::format("{}: an id is missing before a comma (entry {})", where, ids.size() + 1)};
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    const auto used = static_cast<size_t>(end - text.data());
    const bool separated = used == text.size() || text[used] == ',' || kSpace.find(text[used]) != std::string_view::npos;
    if (error != std::errc() || !separated) {
      const std::string_view word = text.substr(0, std::min<size_t>(text.find_first_of(", \t\r\n"), 20));
      return Error{Error::Kind::kInvalid,
                   fmt::format("{}: '{}' (entry {}) is not a token id; ids are whole numbers separated by commas or spaces", where, word,
                               ids.size() + 1)};
    }
    ids.push_back(id);
    text = trim(text.substr(used));
    if (!text.empty() && text.front() == ',') {
      text = trim(text.substr(1));
      if (text.empty()) return Error{Error::Kind::kInvalid, fmt::format("{}: an id is missing after the last comma", where)};
    }
  }
  return ids;
}

}  // namespace baton::app
