#include "load/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <functional>
#include <optional>

namespace baton::load {
namespace {

namespace json = boost::json;

constexpr int64_t kMostTokens = int64_t{1} << 24;

using Line = std::function<std::optional<std::string>(const json::object&)>;  // what is wrong with it, if anything

Status each_line(std::string_view text, const std::string& where, int64_t most, const Line& take) {
  int64_t number = 0, taken = 0;
  while (!text.empty() && (most == 0 || taken < most)) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    boost::system::error_code failed;
    const json::value value = json::parse({line.data(), line.size()}, failed);
    const json::object* object = failed ? nullptr : value.if_object();
    const auto problem = object == nullptr ? std::optional<std::string>("is not a JSON object") : take(*object);
    if (problem) return Error{Error::Kind::kInvalid, fmt::format("{}:{}: {}", where, number, *problem)};
    ++taken;
  }
  if (taken == 0) return Error{Error::Kind::kInvalid, fmt::format("{} holds no line", where)};
  return {};
}

std::optional<double> number_at(const json::object& object, std::string_view key) {
  const json::value* v = object.if_contains(json::string_view(key.data(), key.size()));
  if (v == nullptr || !v->is_number()) return std::nullopt;
  return v->to_number<double>();
}

// A whole number from `least` to kMostTokens.
std::optional<int64_t> tokens_at(const json::object& object, std::string_view key, int64_t least) {
  const auto x = number_at(object, key);
  if (!x || !(*x >= static_cast<double>(least)) || *x > static_cast<double>(kMostTokens) ||
      *x != static_cast<double>(static_cast<int64_t>(*x)))
    return std::nullopt;
  return static_cast<int64_t>(*x);
}

std::string no_number(std::string_view key, int64_t least) {
  return fmt::format("\"{}\" is not a whole number from {} to {}", key, least, kMostTokens);
}

}  // namespace

Result<Workload> mooncake_trace(std::string_view text, const std::string& where, const TraceOptions& o) {
  Workload out;
  double before = 0;
  const Status read = each_line(text, where, o.prompts, [&](const json::object& line) -> std::optional<std::string> {
    const auto at = number_at(line, "timestamp");
    constexpr double kMostMs = 1e15;  // later than any trace, and far from where numbers lose their milliseconds
    if (!at || !(*at >= 0) || *at > kMostMs) return "\"timestamp\" is not a number of milliseconds from 0 to 1e15";
    if (*at < before) return fmt::format("\"timestamp\" {} lies before that of the line above; sort the trace", *at);
    before = *at;
    const auto input = tokens_at(line, "input_length", 1), output = tokens_at(line, "output_length", 1);
    if (!input) return no_number("input_length", 1);
    if (!output) return no_number("output_length", 1);
    Turn turn{.output_tokens = *output};
    int64_t left = *input;
    if (const json::value* ids = line.if_contains("hash_ids"); ids != nullptr) {
      if (!ids->is_array()) return "\"hash_ids\" is not a list";
      for (const json::value& id : ids->get_array()) {
        if (!id.is_int64() && !id.is_uint64()) return "\"hash_ids\" holds something that is not a whole number";
        if (left == 0) return fmt::format("more \"hash_ids\" than {} tokens have blocks of {}; see --mooncake-block", *input, o.block);
        const auto hash = id.is_int64() ? static_cast<uint64_t>(id.get_int64()) : id.get_uint64();
        const int64_t n = std::min(left, o.block);
        turn.prompt.stretches.push_back({.key = key_of(key_of(o.seed, 5), hash), .tokens = n});
        left -= n;
      }
    }
    if (left > 0) turn.prompt.stretches.push_back({.key = key_of(key_of(o.seed, 6), out.size()), .tokens = left});
    out.push_back({.turns = {std::move(turn)}, .arrival_s = *at / 1e3 * o.slowdown});
    return std::nullopt;
  });
  BATON_TRY(read);
  // The first request comes at once, wherever the trace was cut.
  const double first = *out.front().arrival_s;
  for (Conversation& c : out) *c.arrival_s -= first;
  return out;
}

Result<Workload> custom_prompts(std::string_view text, const std::string& where, const TraceOptions& o) {
  Workload out;
  const Status read = each_line(text, where, o.prompts, [&](const json::object& line) -> std::optional<std::string> {
    const json::value* prompt = line.if_contains("prompt");
    if (prompt == nullptr || !prompt->is_string() || prompt->get_string().empty()) return "\"prompt\" is not a text, or empty";
    Turn turn{.prompt = {.text = std::string(prompt->get_string())}, .output_tokens = o.output};
    if (line.contains("output_tokens")) {
      const auto n = tokens_at(line, "output_tokens", 1);
      if (!n) return no_number("output_tokens", 1);
      turn.output_tokens = *n;
    }
    out.push_back({.turns = {std::move(turn)}});
    return std::nullopt;
  });
  BATON_TRY(read);
  return out;
}

}  // namespace baton::load
