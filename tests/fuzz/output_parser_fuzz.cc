// Any bytes as a model's output: the events are the same however it is cut, and arguments are JSON objects. The first byte chooses how the
// output begins, ends and is cut.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <boost/json/parse.hpp>

#include "text/parse/cuttings.h"

using namespace baton::text;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const OutputMarkup markup;
  static const ToolTypes tools = [] {
    ToolTypes types;
    types.add("f", boost::json::parse(
                       R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"}, "l": {"type": ["string", "null"]}}})"));
    return types;
  }();
  if (size == 0) return 0;
  const uint8_t choices = data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const OutputParser::Options options{.starts_in_reasoning = (choices & 1) != 0, .tools = (choices & 2) != 0 ? nullptr : &tools};
  const FinishReason engine = (choices & 4) != 0 ? FinishReason::kLength : FinishReason::kStop;
  const auto whole = parse_pieces(markup, options, {text}, engine);
  std::mt19937_64 random(choices);
  if (parse_pieces(markup, options, by_byte(text), engine) != whole) std::abort();
  if (parse_pieces(markup, options, at_random(text, random, 20), engine) != whole) std::abort();
  std::string arguments;
  for (const OutputEvent& e : whole) {
    if (!valid_utf8(e.text)) std::abort();
    if (e.kind == OutputEvent::Kind::kToolStart) arguments.clear();
    if (e.kind == OutputEvent::Kind::kToolArguments) arguments += e.text;
    if (e.kind == OutputEvent::Kind::kToolEnd && json_kind(arguments) != JsonKind::kObject) std::abort();
  }
  return 0;
}
