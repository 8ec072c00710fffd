#include "text/split.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/json_component.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

struct Part {
  size_t begin = 0, end = 0;
  bool is_match = false;
};

void find_text(std::string_view wanted, std::string_view text, std::vector<TextRange>& matches) {
  if (wanted.empty()) return;
  for (size_t at = 0; (at = text.find(wanted, at)) != std::string_view::npos; at += wanted.size())
    matches.push_back({at, at + wanted.size()});
}

void find_characters(bool (*is_wanted)(char32_t), std::string_view text, std::vector<TextRange>& matches) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const auto begin = static_cast<size_t>(p - text.data());
    if (is_wanted(read_valid_char(p))) matches.push_back({begin, static_cast<size_t>(p - text.data())});
  }
}

// Matches and the gaps between them, in order.
std::vector<Part> parts_of(const std::vector<TextRange>& matches, size_t size, bool invert) {
  std::vector<Part> parts;
  parts.reserve(matches.size() * 2 + 1);
  size_t at = 0;
  for (const TextRange& m : matches) {
    if (at != m.begin) parts.push_back({at, m.begin, invert});
    parts.push_back({m.begin, m.end, !invert});
    at = m.end;
  }
  if (at != size) parts.push_back({at, size, invert});
  return parts;
}

// Joins a part to the one before it whenever `joins(part is a match, the part before was one)`.
template <class Joins>
void join_to_previous(std::vector<Part>& parts, Joins joins) {
  size_t kept = 0;
  bool previous = false;
  for (const Part& p : parts) {
    if (kept > 0 && joins(p.is_match, previous))
      parts[kept - 1].end = p.end;
    else
      parts[kept++] = p;
    previous = p.is_match;
  }
  parts.resize(kept);
}

void join_to_next(std::vector<Part>& parts) {
  size_t kept = parts.size();
  bool next = false;
  for (size_t i = parts.size(); i-- > 0;) {
    const Part p = parts[i];
    if (kept < parts.size() && p.is_match && !next)
      parts[kept].begin = p.begin;
    else
      parts[--kept] = p;
    next = p.is_match;
  }
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(kept));
}

}  // namespace

Result<SplitPattern> read_pattern(const JsonComponent& c) {
  BATON_ASSIGN(const JsonComponent pattern, c.component("pattern"));
  if (pattern.find("String") != nullptr) {
    BATON_ASSIGN(std::string wanted, pattern.text("String"));
    return SplitPattern(std::move(wanted));
  }
  BATON_ASSIGN(const std::string source, pattern.text("Regex"));
  auto regex = Regex::compile(source);
  if (!regex) return Error{regex.error().kind, fmt::format("{}: {}", pattern.path(), regex.error().message)};
  return SplitPattern(std::move(*regex));
}

Status find_matches(const SplitPattern& pattern, std::string_view text, std::vector<TextRange>& matches) {
  if (const auto* regex = std::get_if<Regex>(&pattern)) return regex->find_all(text, matches);
  if (const auto* wanted = std::get_if<std::string>(&pattern))
    find_text(*wanted, text, matches);
  else
    find_characters(std::get<bool (*)(char32_t)>(pattern), text, matches);
  return {};
}

Status Split::apply(std::string_view text, std::vector<std::string_view>& pieces) const {
  std::vector<TextRange> matches;
  BATON_TRY(find_matches(pattern, text, matches));
  std::vector<Part> parts = parts_of(matches, text.size(), invert);
  switch (behavior) {
    case SplitBehavior::kRemoved: std::erase_if(parts, [](const Part& p) { return p.is_match; }); break;
    case SplitBehavior::kIsolated: break;
    case SplitBehavior::kMergedWithPrevious: join_to_previous(parts, [](bool match, bool previous) { return match && !previous; }); break;
    case SplitBehavior::kMergedWithNext: join_to_next(parts); break;
    case SplitBehavior::kContiguous: join_to_previous(parts, [](bool match, bool previous) { return match == previous; }); break;
  }
  for (const Part& p : parts)
    if (p.begin != p.end) pieces.push_back(text.substr(p.begin, p.end - p.begin));
  return {};
}

}  // namespace baton::text
