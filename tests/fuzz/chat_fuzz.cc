// Any bytes as the JSON of a chat request, for templates in the manner of several families: refused with a message, or rendered, and
// then what users and tools wrote is untrusted to the last byte.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/chat_template.h"
#include "text/utf8.h"

using baton::text::ChatRequest;
using baton::text::ChatTemplate;
using baton::text::ChatValue;
using baton::text::jinja::Type;

namespace {

std::vector<ChatTemplate> load_all() {
  std::vector<ChatTemplate> all;
  for (const char* name : {"glm", "chatml", "steps", "headers", "typed", "inst", "blocks"}) {
    auto t = ChatTemplate::load(BATON_TEST_DATA "/chat", std::string(BATON_TEST_DATA "/chat/templates/") + name + ".jinja");
    if (!t.ok()) std::abort();
    t->set_variable("bos_token", ChatValue::text("<s>"));
    t->set_variable("eos_token", ChatValue::text("</s>"));
    t->limits = {.output_bytes = 1 << 20, .live_bytes = 1 << 24, .steps = 400'000, .depth = 300};
    all.push_back(std::move(*t));
  }
  return all;
}

// Ranges in order, and no character that only messages hold outside of them.
void check(const baton::text::jinja::Rendered& out) {
  constexpr std::string_view kMark = "\uE000";
  if (!baton::text::valid_utf8(out.text)) std::abort();
  size_t next = 0;
  for (const auto& range : out.untrusted) {
    if (range.begin < next || range.end <= range.begin || range.end > out.text.size()) std::abort();
    if (const size_t at = out.text.find(kMark, next); at < range.begin) std::abort();
    next = range.end;
  }
  if (out.text.find(kMark, next) != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<ChatTemplate> templates = load_all();
  const auto parsed = baton::text::jinja::parse_json({reinterpret_cast<const char*>(data), size}, true, "request");
  if (!parsed.ok()) return 0;
  ChatRequest request;
  request.messages = *parsed;
  if (parsed->is(Type::kDict)) {
    if (const ChatValue* v = parsed->as_dict().find("messages")) request.messages = *v;
    if (const ChatValue* v = parsed->as_dict().find("tools")) request.tools = *v;
    if (const ChatValue* v = parsed->as_dict().find("options"); v != nullptr && v->is(Type::kDict))
      for (const auto& [name, value] : v->as_dict().entries) request.options.emplace_back(name.view(), value);
  }
  request.now = std::tm{};
  for (const ChatTemplate& t : templates)
    for (const bool go_on : {false, true}) {
      request.continue_final_message = go_on;
      request.add_generation_prompt = !go_on;
      request.trust = {.everything = false, .system = false, .assistant = false};
      const auto out = t.render(request);
      if (!out.ok()) {
        if (out.error().message.empty()) std::abort();
        continue;
      }
      check(*out);
      request.trust = {.everything = true, .system = true, .assistant = true};
      const auto trusted = t.render(request);
      if (!trusted.ok() || !trusted->untrusted.empty() || trusted->text != out->text) std::abort();
    }
  return 0;
}
