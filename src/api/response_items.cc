#include "api/response_items.h"

#include <optional>

#include "api/message_blocks.h"

namespace baton::api {
namespace {

using text::ChatValue;
namespace jinja = text::jinja;
using jinja::Type;

ChatValue text_value(std::string_view text) { return ChatValue::text(text); }

class ItemReader {
 public:
  explicit ItemReader(Reading& reading) : reading_(reading) {}

  void item(const ChatValue& item, const std::string& where) {
    if (!item.is(Type::kDict)) return wrong(where, "must be an object");
    const ChatValue* type = given(item, "type");
    const std::string name = type == nullptr ? "message" : type->is_string() ? std::string(type->view()) : "";
    if (name == "message") return message(item, where);
    if (name == "function_call") return call(item, where);
    if (name == "function_call_output") return output(item, where);
    if (name == "reasoning") return reasoning(item, where);
    if (!failed())
      reading_.error = ApiError::unsupported(
          where + ".type", fmt::format("items of the type '{}' are not supported; 'message', 'function_call', 'function_call_output' and "
                                       "'reasoning' are",
                                       name.substr(0, 64)));
  }

  ChatValue finish() {
    flush();
    return list_of(out_);
  }

  bool failed() const { return reading_.error.has_value(); }

 private:
  // What the assistant did since the last message of another role.
  struct Turn {
    std::string text, reasoning;
    std::vector<ChatValue> calls;
  };

  void wrong(std::string where, std::string_view what) {
    if (!reading_.error) reading_.error = ApiError::field(std::move(where), what);
  }

  static const ChatValue* given(const ChatValue& object, std::string_view key) {
    const ChatValue* v = object.as_dict().find(key);
    return v == nullptr || v->is_none() ? nullptr : v;
  }

  std::string string_of(const ChatValue& object, std::string_view key, const std::string& where) {
    const ChatValue* v = given(object, key);
    if (v != nullptr && v->is_string()) return std::string(v->view());
    wrong(fmt::format("{}.{}", where, key), "must be a string");
    return {};
  }

  // The text of a string, or of a list of parts that are all text.
  std::string text_of(const ChatValue* content, const std::string& where) {
    if (content == nullptr) return wrong(where, "is missing"), std::string();
    if (content->is_string()) return std::string(content->view());
    if (!content->is(Type::kList)) return wrong(where, "must be a string or a list of parts"), std::string();
    std::string text;
    const auto& parts = content->as_list().items;
    for (size_t i = 0; i < parts.size() && !failed(); ++i) {
      const std::string place = fmt::format("{}[{}]", where, i);
      if (!parts[i].is(Type::kDict)) return wrong(place, "must be an object"), std::string();
      const std::string type = string_of(parts[i], "type", place);
      if (failed()) return {};
      const bool known =
          type == "input_text" || type == "output_text" || type == "text" || type == "summary_text" || type == "reasoning_text";
      if (!known && type != "refusal") {
        reading_.error = ApiError::unsupported(
            place + ".type", fmt::format("parts of the type '{}' are not supported; this model reads text only", type.substr(0, 64)));
        return {};
      }
      text += string_of(parts[i], known ? "text" : "refusal", place);
    }
    return text;
  }

  Turn& turn() {
    if (!turn_) turn_.emplace();
    return *turn_;
  }

  void flush() {
    if (!turn_) return;
    ChatValue message = object_of({{"role", text_value("assistant")}, {"content", text_value(turn_->text)}});
    if (!turn_->reasoning.empty()) message.as_dict().set(text_value("reasoning_content"), text_value(turn_->reasoning));
    if (!turn_->calls.empty()) message.as_dict().set(text_value("tool_calls"), list_of(turn_->calls));
    out_.push_back(std::move(message));
    turn_.reset();
  }

  void message(const ChatValue& item, const std::string& where) {
    const std::string role = string_of(item, "role", where);
    if (failed()) return;
    if (role != "user" && role != "system" && role != "developer" && role != "assistant")
      return wrong(where + ".role", "must be 'user', 'system', 'developer' or 'assistant'");
    const std::string text = text_of(given(item, "content"), where + ".content");
    if (failed()) return;
    if (role == "assistant") {
      turn().text += text;
      return;
    }
    flush();
    out_.push_back(object_of({{"role", text_value(role == "developer" ? "system" : role)}, {"content", text_value(text)}}));
  }

  void call(const ChatValue& item, const std::string& where) {
    const std::string id = string_of(item, "call_id", where), name = string_of(item, "name", where);
    std::string arguments = string_of(item, "arguments", where);
    if (failed()) return;
    if (arguments.empty()) arguments = "{}";
    const auto parsed = jinja::parse_json(arguments, true, "arguments");
    if (!parsed.ok() || !parsed->is(Type::kDict)) return wrong(where + ".arguments", "must be a string that holds a JSON object");
    turn().calls.push_back(object_of({{"id", text_value(id)},
                                      {"type", text_value("function")},
                                      {"function", object_of({{"name", text_value(name)}, {"arguments", *parsed}})}}));
  }

  void output(const ChatValue& item, const std::string& where) {
    const std::string id = string_of(item, "call_id", where);
    const std::string text = text_of(given(item, "output"), where + ".output");
    if (failed()) return;
    flush();
    out_.push_back(object_of({{"role", text_value("tool")}, {"tool_call_id", text_value(id)}, {"content", text_value(text)}}));
  }

  void reasoning(const ChatValue& item, const std::string& where) {
    const ChatValue* content = given(item, "content");
    if (content == nullptr) return;  // summaries are not what was thought
    const std::string text = text_of(content, where + ".content");
    if (!failed()) turn().reasoning += text;
  }

  Reading& reading_;
  std::vector<ChatValue> out_;
  std::optional<Turn> turn_;
};

}  // namespace

ChatValue messages_of_items(Reading& reading, const ChatValue& input) {
  if (input.is_string()) {
    const ChatValue message = object_of({{"role", text_value("user")}, {"content", input}});
    return list_of({&message, 1});
  }
  const auto refuse = [&](std::string_view what) {
    reading.error = ApiError::field("input", what);
    return ChatValue();
  };
  if (!input.is(Type::kList)) return refuse("must be a string or a list of items");
  const auto& items = input.as_list().items;
  if (items.empty()) return refuse("is empty; one item at least is needed");
  if (items.size() > reading.limits.messages)
    return refuse(fmt::format("has {} elements; {} are the most", items.size(), reading.limits.messages));
  ItemReader reader(reading);
  for (size_t i = 0; i < items.size() && !reader.failed(); ++i) reader.item(items[i], fmt::format("input[{}]", i));
  return reader.failed() ? ChatValue() : reader.finish();
}

}  // namespace baton::api
