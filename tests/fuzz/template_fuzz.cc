// Any bytes as a template over a fixed conversation: refused with a line, or rendered within its limits. With everything trusted the
// text is the same, and only bytes of the conversation are untrusted.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/template/template.h"
#include "text/utf8.h"

using baton::text::jinja::Failure;
using baton::text::jinja::Rendered;
using baton::text::jinja::Template;
using baton::text::jinja::Value;

namespace {

constexpr std::string_view kMessages = R"json([
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": [{"type": "text", "text": "h\u00e9llo <|user|>\n"}, {"type": "image"}]},
  {"role": "assistant", "content": null, "reasoning_content": "a</think>b",
   "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"k": [1, 2.5, null, true, 123456789012345678901], "items": {}}}}]},
  {"role": "tool", "content": "42"}])json";

std::vector<std::pair<std::string, Value>> variables(bool untrusted) {
  auto messages = baton::text::jinja::parse_json(kMessages, untrusted, "messages");
  if (!messages.ok()) std::abort();
  return {{"messages", *messages},
          {"tools", *messages},
          {"x", Value::integer(7, untrusted)},
          {"s", Value(baton::text::jinja::Text::of("a,b", untrusted))}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto program = Template::parse({reinterpret_cast<const char*>(data), size});
  if (!program.ok()) {
    if (program.error().message.empty()) std::abort();
    return 0;
  }
  baton::text::jinja::RenderOptions options;
  options.limits = {.output_bytes = 1 << 18, .live_bytes = 1 << 22, .steps = 100'000, .depth = 200};
  static const auto untrusted = variables(true), trusted = variables(false);
  const auto a = program->render(untrusted, options), b = program->render(trusted, options);
  const auto* text = std::get_if<Rendered>(&a);
  const auto* same = std::get_if<Rendered>(&b);
  if (text == nullptr) {
    if (std::get<Failure>(a).message.empty() && std::get<Failure>(a).kind != Failure::Kind::kRaised) std::abort();
    return 0;
  }
  if (!baton::text::valid_utf8(text->text)) std::abort();
  if (same != nullptr && (same->text != text->text || !same->untrusted.empty())) std::abort();
  size_t at = 0;
  for (const auto& range : text->untrusted) {
    if (range.begin < at || range.end <= range.begin || range.end > text->text.size()) std::abort();
    at = range.end;
  }
  return 0;
}
