#include "text/chat_origin.h"

#include <algorithm>
#include <array>

namespace baton::text {
namespace {

using jinja::Type;

bool is_protocol_word(std::string_view word) {
  constexpr std::array<std::string_view, 8> kWords = {"system", "developer", "user", "assistant", "tool", "function", "ipython", "text"};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

ChatValue content_with_origin(const ChatValue& content, bool untrusted) {
  if (!content.is(Type::kList)) return with_origin(content, untrusted);
  auto parts = std::make_shared<jinja::List>();
  for (const ChatValue& part : content.as_list().items) {
    ChatValue tagged = with_origin(part, untrusted);
    if (part.is(Type::kDict)) {
      const ChatValue* type = part.as_dict().find("type");
      if (type != nullptr && type->is_string() && is_protocol_word(type->view()))
        tagged.as_dict().set(ChatValue::text("type"), with_origin(*type, false));
    }
    parts->items.push_back(tagged);
    parts->hold(tagged);
  }
  return parts;
}

bool is_trusted(const Trust& trust, std::string_view role) {
  return trust.everything || (trust.system && (role == "system" || role == "developer")) || (trust.assistant && role == "assistant");
}

}  // namespace

ChatValue with_origin(const ChatValue& v, bool untrusted) {
  switch (v.type()) {
    case Type::kNone: return ChatValue::none(untrusted);
    case Type::kBool: return ChatValue::boolean(v.as_bool(), untrusted);
    case Type::kInt: return ChatValue::integer(v.as_int(), untrusted);
    case Type::kBigInt: return ChatValue::integer(v.as_big(), untrusted);
    case Type::kFloat: return ChatValue::real(v.as_float(), untrusted);
    case Type::kString: {
      const jinja::Text text = v.as_text();
      bool same = true;
      text.for_each_run(0, text.size(), [&](size_t, size_t, bool has) { same &= has == untrusted; });
      return same ? v : ChatValue(jinja::Text::of(text.view(), untrusted));
    }
    case Type::kList: {
      auto list = std::make_shared<jinja::List>();
      for (const ChatValue& item : v.as_list().items) {
        list->items.push_back(with_origin(item, untrusted));
        list->hold(list->items.back());
      }
      return list;
    }
    case Type::kDict: {
      auto dict = std::make_shared<jinja::Dict>();
      for (const auto& [key, value] : v.as_dict().entries) dict->set(with_origin(key, untrusted), with_origin(value, untrusted));
      return dict;
    }
    default: return v;
  }
}

ChatValue with_origin(const ChatValue& message, const Trust& trust) {
  const ChatValue* role = message.as_dict().find("role");
  const std::string_view word = role != nullptr && role->is_string() ? role->view() : std::string_view();
  // Names, ids and the like are no words of the operator, even of a system message.
  const bool rest_untrusted = !trust.everything && !(trust.assistant && word == "assistant");
  auto out = std::make_shared<jinja::Dict>();
  for (const auto& [key, value] : message.as_dict().entries) {
    const std::string_view name = key.view();
    ChatValue tagged;
    if (name == "role")
      tagged = with_origin(value, !trust.everything && !is_protocol_word(word));
    else if (name == "content")
      tagged = content_with_origin(value, !is_trusted(trust, word));
    else
      tagged = with_origin(value, rest_untrusted);
    out->set(with_origin(key, !trust.everything), tagged);
  }
  return out;
}

}  // namespace baton::text
