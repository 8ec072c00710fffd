#include "api/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/stream_parser.hpp>
#include <cmath>
#include <optional>

#include "text/parse/json_check.h"

namespace baton::api {
namespace {

namespace json = boost::json;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Behind the string that begins at `at`, or the end of the text.
size_t skip_string(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\')
      ++at;
    else if (text[at] == '"')
      return at + 1;
  }
  return text.size();
}

// The following walk valid JSON.
size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

size_t skip_value(std::string_view text, size_t at) {
  if (text[at] == '"') return skip_string(text, at);
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = skip_string(text, at);
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    const bool closes = c == '}' || c == ']';
    if (depth == 0 && (closes || c == ',' || is_space(c))) return at;
    ++at;
    if (closes && --depth == 0) return at;
  }
  return at;
}

// Keys and values of an object as they stand there.
struct Members {
  std::vector<std::string_view> keys, values;
};

Members members_of(std::string_view text) {
  Members members;
  size_t at = skip_space(text, skip_space(text, 0) + 1);
  while (text[at] != '}') {
    const size_t key_end = skip_string(text, at);
    members.keys.push_back(text.substr(at, key_end - at));
    at = skip_space(text, skip_space(text, key_end) + 1);  // behind the colon
    const size_t end = skip_value(text, at);
    members.values.push_back(text.substr(at, end - at));
    at = skip_space(text, end);
    if (text[at] == ',') at = skip_space(text, at + 1);
  }
  return members;
}

// The first key that is there twice. Compared as written: of two spellings of one key the parser has made one member, and the caller sees
// that the numbers differ.
std::string twice(std::vector<std::string_view> keys) {
  std::sort(keys.begin(), keys.end());
  const auto at = std::adjacent_find(keys.begin(), keys.end());
  constexpr size_t kMostShown = 100;
  return at == keys.end() ? "a field" : std::string(at->substr(0, kMostShown));
}

// Where a number is that no double holds, which the parser reads as infinite: "metadata.a[3]".
std::optional<std::string> infinite_number(const json::value& value) {
  if (value.is_double() && !std::isfinite(value.get_double())) return "";
  std::optional<std::string> found;
  if (value.is_array()) {
    const json::array& items = value.get_array();
    for (size_t i = 0; i < items.size() && !found; ++i)
      if ((found = infinite_number(items[i]))) found = fmt::format("[{}]{}", i, *found);
  } else if (value.is_object()) {
    for (const auto& member : value.get_object()) {
      if (!(found = infinite_number(member.value()))) continue;
      constexpr size_t kMostShown = 100;
      return fmt::format(".{}{}", std::string_view(member.key()).substr(0, kMostShown), *found);
    }
  }
  return found;
}

ApiError no_json(std::string_view text, const json::parse_options& options, const json::error_code& error) {
  // Again, by a parser that says how far it came.
  json::error_code same;
  json::stream_parser parser({}, options);
  const size_t at = std::min(parser.write_some(text, same), text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  return ApiError::invalid(fmt::format("The body is no JSON: {} at byte {}, in line {}.", error.message(), at, line), "invalid_json");
}

}  // namespace

ApiResult<Body> Body::parse(std::string_view text, const ParseLimits& limits) {
  if (text.size() > limits.body_bytes)
    return ApiError::too_large(fmt::format("The body has {} bytes; {} are the most that is taken.", text.size(), limits.body_bytes));
  if (count_values(text) > limits.values)
    return ApiError::too_large(fmt::format("The body holds more than {} JSON values, the most that is taken.", limits.values));
  Body body;
  body.store_ = std::make_unique<Store>();
  if (text.find("\\ud") != std::string_view::npos || text.find("\\uD") != std::string_view::npos)
    text = body.store_->repaired = text::with_whole_surrogates(text);

  json::error_code error;
  json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.depth);
  body.store_->root = json::parse(text, error, {}, options);
  if (error == json::error::too_deep)
    return ApiError::invalid(fmt::format("The body is nested deeper than {} levels, the most that is taken.", limits.depth));
  if (error) return no_json(text, options, error);
  if (!body.store_->root.is_object()) return ApiError::invalid("The body is JSON, but no object: {...} is needed.", "invalid_json");

  Members raw = members_of(text);
  if (const auto path = infinite_number(body.store_->root)) return ApiError::field(path->substr(1), "is a number larger than any float");
  const json::object& object = body.store_->root.get_object();
  if (raw.values.size() > limits.fields)
    return ApiError::invalid(fmt::format("The body has {} fields; {} are the most that is taken.", raw.values.size(), limits.fields));
  if (raw.values.size() != object.size())
    return ApiError::invalid(fmt::format("The body has {} twice; which one is meant cannot be known.", twice(std::move(raw.keys))));
  size_t i = 0;
  body.members.reserve(object.size());
  for (const auto& member : object) body.members.push_back({member.key(), raw.values[i++], &member.value()});
  return body;
}

size_t count_values(std::string_view text) {
  size_t values = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      at = skip_string(text, at);
      continue;
    }
    values += c == ',' || c == '[' || c == '{' ? 1 : 0;
    ++at;
  }
  return values;
}

}  // namespace baton::api
