#include "api/message_blocks.h"

#include <memory>

namespace baton::api {
namespace {

using text::ChatValue;
namespace jinja = text::jinja;
using jinja::Type;

ChatValue text_value(std::string_view text) { return ChatValue::text(text); }

const ChatValue* given(const ChatValue& object, std::string_view key) {
  const ChatValue* v = object.as_dict().find(key);
  return v == nullptr || v->is_none() ? nullptr : v;
}

ChatValue text_part(const ChatValue& text) { return object_of({{"type", text_value("text")}, {"text", text}}); }

// Turns messages of blocks into messages of chat completions, one after another.
class BlockReader {
 public:
  explicit BlockReader(Reading& reading) : reading_(reading) {}

  // A string, or blocks that are all text: what `content` of a message may be. Missing if there is an error.
  ChatValue text_content(const ChatValue& content, const std::string& where) {
    if (content.is_string()) return content;
    if (!content.is(Type::kList)) return wrong(where, "must be a string or a list of blocks");
    std::vector<ChatValue> parts;
    const auto& blocks = content.as_list().items;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string place = fmt::format("{}[{}]", where, i);
      const std::string type = block_type(blocks[i], place);
      if (failed()) return {};
      if (type != "text") return unsupported(place, type);
      parts.push_back(text_part(text_of(blocks[i], "text", place)));
    }
    if (parts.empty()) return text_value("");
    return list_of(parts);
  }

  void message(const ChatValue& message, const std::string& where) {
    if (!message.is(Type::kDict)) return void(wrong(where, "must be an object"));
    const ChatValue* role = given(message, "role");
    const std::string name = role != nullptr && role->is_string() ? std::string(role->view()) : "";
    const ChatValue* content = given(message, "content");
    if (name != "user" && name != "assistant" && name != "system")
      return void(wrong(where + ".role", "must be 'user', 'assistant' or 'system'"));
    if (content == nullptr) return void(wrong(where + ".content", "is missing"));
    if (name == "assistant") return assistant(*content, where + ".content");
    if (name == "user" && content->is(Type::kList)) return user(content->as_list().items, where + ".content");
    const ChatValue text = text_content(*content, where + ".content");
    if (!failed()) out_.push_back(object_of({{"role", text_value(name)}, {"content", text}}));
  }

  bool failed() const { return reading_.error.has_value(); }
  std::vector<ChatValue>& messages() { return out_; }

 private:
  ChatValue wrong(std::string where, std::string_view what) {
    if (!reading_.error) reading_.error = ApiError::field(std::move(where), what);
    return {};
  }

  ChatValue unsupported(const std::string& block, std::string_view type) {
    if (!reading_.error)
      reading_.error = ApiError::unsupported(
          block + ".type", fmt::format("blocks of the type '{}' are not supported here; this model reads text only", type.substr(0, 64)));
    return {};
  }

  std::string block_type(const ChatValue& block, const std::string& where) {
    const ChatValue* type = block.is(Type::kDict) ? given(block, "type") : nullptr;
    if (type != nullptr && type->is_string()) return std::string(type->view());
    wrong(where, "must be an object with a `type`");
    return {};
  }

  ChatValue text_of(const ChatValue& block, std::string_view key, const std::string& where) {
    const ChatValue* text = given(block, key);
    if (text != nullptr && text->is_string()) return *text;
    return wrong(fmt::format("{}.{}", where, key), "must be a string");
  }

  // Results of tools are messages of their own; text around them keeps its place.
  void user(const std::vector<ChatValue>& blocks, const std::string& where) {
    std::vector<ChatValue> parts;
    const auto flush = [&] {
      if (!parts.empty()) out_.push_back(object_of({{"role", text_value("user")}, {"content", list_of(parts)}}));
      parts.clear();
    };
    if (blocks.empty()) return void(wrong(where, "is an empty list"));
    for (size_t i = 0; i < blocks.size() && !failed(); ++i) {
      const std::string place = fmt::format("{}[{}]", where, i);
      const std::string type = block_type(blocks[i], place);
      if (failed()) return;
      if (type == "text") {
        parts.push_back(text_part(text_of(blocks[i], "text", place)));
      } else if (type == "tool_result") {
        flush();
        const ChatValue id = text_of(blocks[i], "tool_use_id", place);
        const ChatValue* content = given(blocks[i], "content");
        const ChatValue result = content == nullptr ? text_value("") : text_content(*content, place + ".content");
        if (!failed()) out_.push_back(object_of({{"role", text_value("tool")}, {"tool_call_id", id}, {"content", result}}));
      } else {
        return void(unsupported(place, type));
      }
    }
    if (!failed()) flush();
  }

  void assistant(const ChatValue& content, const std::string& where) {
    if (content.is_string()) return out_.push_back(object_of({{"role", text_value("assistant")}, {"content", content}}));
    if (!content.is(Type::kList)) return void(wrong(where, "must be a string or a list of blocks"));
    std::string text, thinking;
    std::vector<ChatValue> calls;
    const auto& blocks = content.as_list().items;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string place = fmt::format("{}[{}]", where, i);
      const std::string type = block_type(blocks[i], place);
      if (failed()) return;
      if (type == "text" || type == "thinking") {
        const ChatValue words = text_of(blocks[i], type, place);
        if (failed()) return;
        (type == "text" ? text : thinking) += words.view();
      } else if (type == "tool_use") {
        const ChatValue id = text_of(blocks[i], "id", place), name = text_of(blocks[i], "name", place);
        const ChatValue* input = given(blocks[i], "input");
        if (input != nullptr && !input->is(Type::kDict)) wrong(place + ".input", "must be an object");
        if (failed()) return;
        const ChatValue arguments = input != nullptr ? *input : object_of({});
        calls.push_back(
            object_of({{"id", id}, {"type", text_value("function")}, {"function", object_of({{"name", name}, {"arguments", arguments}})}}));
      } else if (type != "redacted_thinking") {  // which says nothing to this model
        return void(unsupported(place, type));
      }
    }
    ChatValue message = object_of({{"role", text_value("assistant")}, {"content", text_value(text)}});
    if (!thinking.empty()) message.as_dict().set(text_value("reasoning_content"), text_value(thinking));
    if (!calls.empty()) message.as_dict().set(text_value("tool_calls"), list_of(calls));
    out_.push_back(std::move(message));
  }

  Reading& reading_;
  std::vector<ChatValue> out_;
};

}  // namespace

ChatValue object_of(std::initializer_list<std::pair<std::string_view, ChatValue>> members) {
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, value] : members) dict->set(ChatValue::text(key), value);
  return dict;
}

ChatValue list_of(std::span<const ChatValue> items) {
  auto list = std::make_shared<jinja::List>();
  for (const ChatValue& item : items) {
    list->items.push_back(item);
    list->hold(item);
  }
  return list;
}

ChatValue system_message(Reading& reading, const ChatValue& system) {
  BlockReader reader(reading);
  const ChatValue content = reader.text_content(system, "system");
  return reader.failed() ? ChatValue() : object_of({{"role", ChatValue::text("system")}, {"content", content}});
}

ChatValue chat_messages(Reading& reading, const ChatValue& messages) {
  BlockReader reader(reading);
  if (!messages.is(Type::kList)) {
    reading.error = ApiError::field("messages", "must be a list");
    return {};
  }
  const auto& items = messages.as_list().items;
  for (size_t i = 0; i < items.size() && !reader.failed(); ++i) reader.message(items[i], fmt::format("messages[{}]", i));
  return list_of(reader.messages());
}

}  // namespace baton::api
