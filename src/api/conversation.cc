#include "api/conversation.h"

#include <algorithm>
#include <array>

#include "api/body.h"
#include "api/field_table.h"
#include "api/message_blocks.h"

namespace baton::api {
namespace {

using text::ChatValue;
namespace jinja = text::jinja;
using jinja::Type;

// One message of a list; says what is wrong with it.
class MessageCheck {
 public:
  MessageCheck(Reading& reading, jinja::Dict& message, std::string path) : reading_(reading), message_(message), path_(std::move(path)) {}

  void run() {
    const ChatValue* role = given("role");
    if (role == nullptr || !role->is_string()) return wrong(".role", "must be 'system', 'developer', 'user', 'assistant' or 'tool'");
    const std::string name(role->view());
    if (name == "developer") message_.set(ChatValue::text("role"), ChatValue::text("system"));
    if (name == "assistant") return assistant();
    if (name == "function") return wrong(".role", "is 'function', which is out of use; 'tool' is its successor");
    if (name != "system" && name != "developer" && name != "user" && name != "tool")
      return wrong(".role", fmt::format("is '{}'; it must be 'system', 'developer', 'user', 'assistant' or 'tool'", name.substr(0, 40)));
    if (given("content") == nullptr) return wrong(".content", "is missing");
    content();
  }

 private:
  void wrong(std::string_view where, std::string_view what) {
    if (!reading_.error) reading_.error = ApiError::field(path_ + std::string(where), what);
  }

  // Null counts as not there.
  const ChatValue* given(std::string_view key) const {
    const ChatValue* v = message_.find(key);
    return v == nullptr || v->is_none() ? nullptr : v;
  }

  void assistant() {
    for (const char* key : {"reasoning_content", "reasoning"})
      if (const ChatValue* v = given(key); v != nullptr && !v->is_string()) return wrong("." + std::string(key), "must be a string");
    if (given("reasoning_content") == nullptr && given("reasoning") != nullptr)
      message_.set(ChatValue::text("reasoning_content"), *given("reasoning"));
    if (given("function_call") != nullptr) return wrong(".function_call", "is out of use; `tool_calls` is its successor");
    if (!thinking_parts()) return;
    if (given("content") == nullptr)
      message_.set(ChatValue::text("content"), ChatValue::text(""));
    else
      content();
    calls();
  }

  // Parts of thinking are reasoning. False if one is wrong.
  bool thinking_parts() {
    const ChatValue* content = given("content");
    if (content == nullptr || !content->is(Type::kList)) return true;
    auto& parts = content->as_list().items;
    std::optional<std::string> thinking;
    for (size_t i = 0; i < parts.size(); ++i) {
      const ChatValue* type = parts[i].is(Type::kDict) ? parts[i].as_dict().find("type") : nullptr;
      if (type == nullptr || !type->is_string() || type->view() != "thinking") continue;
      const ChatValue* words = parts[i].as_dict().find("thinking");
      if (words == nullptr || !words->is_string()) return wrong(fmt::format(".content[{}].thinking", i), "must be a string"), false;
      thinking = thinking.value_or("") + std::string(words->view());
    }
    if (!thinking) return true;
    if (given("reasoning_content") != nullptr)
      return wrong(".content", "has parts of thinking, beside a field for reasoning; give one of them"), false;
    std::erase_if(parts, [](const ChatValue& part) {
      const ChatValue* type = part.is(Type::kDict) ? part.as_dict().find("type") : nullptr;
      return type != nullptr && type->is_string() && type->view() == "thinking";
    });
    message_.set(ChatValue::text("reasoning_content"), ChatValue::text(*thinking));
    if (parts.empty()) message_.set(ChatValue::text("content"), ChatValue::text(""));
    return true;
  }

  void content() {
    const ChatValue& content = *given("content");
    if (content.is_string()) return;
    if (!content.is(Type::kList)) return wrong(".content", "must be a string or a list of parts");
    auto& parts = content.as_list().items;
    if (parts.empty()) return wrong(".content", "is an empty list");
    for (size_t i = 0; i < parts.size(); ++i) part(parts[i], fmt::format(".content[{}]", i));
  }

  // What is no part at all is left to text::find_problem.
  void part(const ChatValue& value, const std::string& where) {
    if (!value.is(Type::kDict)) return;
    jinja::Dict& dict = value.as_dict();
    const ChatValue* type = dict.find("type");
    if (type == nullptr || !type->is_string()) return;
    if (type->view() == "refusal") {  // the words of an earlier answer
      const ChatValue* refusal = dict.find("refusal");
      if (refusal == nullptr || !refusal->is_string()) return wrong(where + ".refusal", "must be a string");
      const ChatValue words = *refusal;
      dict.set(ChatValue::text("type"), ChatValue::text("text"));
      dict.set(ChatValue::text("text"), words);
      return;
    }
    const ChatValue* text = dict.find("text");
    if (type->view() == "text" && (text == nullptr || !text->is_string())) wrong(where + ".text", "must be a string");
  }

  void calls() {
    const ChatValue* calls = given("tool_calls");
    if (calls == nullptr) return;
    if (!calls->is(Type::kList)) return wrong(".tool_calls", "must be a list");
    const auto& items = calls->as_list().items;
    for (size_t i = 0; i < items.size(); ++i) call(items[i], fmt::format(".tool_calls[{}]", i));
  }

  void call(const ChatValue& value, const std::string& where) {
    if (!value.is(Type::kDict)) return wrong(where, "must be an object");
    if (const ChatValue* type = value.as_dict().find("type"); type != nullptr && !(type->is_string() && type->view() == "function"))
      return wrong(where + ".type", "must be 'function'");
    const ChatValue* function = value.as_dict().find("function");
    if (function == nullptr || !function->is(Type::kDict)) return wrong(where + ".function", "must be an object");
    jinja::Dict& dict = function->as_dict();
    const ChatValue* name = dict.find("name");
    if (name == nullptr || !name->is_string() || name->view().empty()) return wrong(where + ".function.name", "must be a string");
    const ChatValue* arguments = dict.find("arguments");
    const bool nothing = arguments == nullptr || arguments->is_none() || (arguments->is_string() && arguments->view().empty());
    if (nothing) return dict.set(ChatValue::text("arguments"), ChatValue::text("{}"));
    if (arguments->is(Type::kDict)) return;
    const auto parsed = arguments->is_string() ? jinja::parse_json(arguments->view(), true, "arguments") : Result<ChatValue>(ChatValue());
    if (!parsed.ok() || !parsed->is(Type::kDict)) wrong(where + ".function.arguments", "must be a string that holds a JSON object");
  }

  Reading& reading_;
  jinja::Dict& message_;
  const std::string path_;
};

bool is_function_name(std::string_view name) {
  constexpr size_t kMost = 128;
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  return !name.empty() && name.size() <= kMost && name.find_first_not_of(kLetters) == std::string_view::npos;
}

bool offers(const Tools& tools, std::string_view name) {
  return std::any_of(tools.functions.begin(), tools.functions.end(), [&](const text::ToolFunction& f) { return f.name == name; });
}

}  // namespace

text::ToolTypes Tools::types() const {
  text::ToolTypes types;
  for (const text::ToolFunction& f : functions) types.add(f.name, f.parameters);
  return types;
}

ChatValue template_value(FieldReader& in) {
  const size_t most = in.limits().conversation_values;
  if (count_values(in.raw()) > most) {
    in.wrong(fmt::format("holds more than {} JSON values, the most that is taken here", most));
    return {};
  }
  auto value = jinja::parse_json(in.raw(), true, in.path());
  if (value.ok()) return std::move(*value);
  in.wrong(value.error().message);
  return {};
}

void check_messages(Reading& reading, ChatValue& messages) {
  if (!messages.is(Type::kList)) {
    reading.error = ApiError::field("messages", "must be a list");
    return;
  }
  const auto& items = messages.as_list().items;
  if (items.empty()) reading.error = ApiError::field("messages", "is empty; one message at least is needed");
  if (items.size() > reading.limits.messages)
    reading.error = ApiError::field("messages", fmt::format("has {} elements; {} are the most", items.size(), reading.limits.messages));
  for (size_t i = 0; i < items.size() && !reading.error; ++i) {
    std::string path = fmt::format("messages[{}]", i);
    if (!items[i].is(Type::kDict))
      reading.error = ApiError::field(std::move(path), "must be an object");
    else
      MessageCheck(reading, items[i].as_dict(), std::move(path)).run();
  }
}

void add_function(ChatRequest& out, FieldReader name, const boost::json::value* parameters, const FieldReader& owner) {
  const auto called = name.text(FieldReader::kMostNameBytes);
  if (!called) return;
  if (!is_function_name(*called))
    return name.wrong(fmt::format("is {}; it must have 1 to 128 characters of A-Z a-z 0-9 _ . -", shown(name.value())));
  if (offers(out.tools, *called)) return name.wrong(fmt::format("is '{}', like that of an earlier function", *called));
  const bool given = parameters != nullptr && !parameters->is_null();
  if (given && !parameters->is_object()) return owner.member("parameters", *parameters).wrong("must be an object, a JSON schema");
  out.tools.functions.push_back({std::string(*called), given ? *parameters : boost::json::value()});
}

void read_flat_tools(FieldReader& in, ChatRequest& out, std::string_view schema_name,
                     void (*check)(FieldReader& tool, const boost::json::object& members)) {
  const boost::json::array* tools = in.array(in.limits().tools);
  if (tools == nullptr) return;
  const text::ChatValue exact = template_value(in);
  std::vector<text::ChatValue> shown_tools;
  for (size_t i = 0; i < tools->size() && !in.failed(); ++i) {
    FieldReader tool = in.item(i, (*tools)[i]);
    const boost::json::object* members = tool.object();
    if (members == nullptr) return;
    check(tool, *members);
    if (in.failed()) return;
    const auto* name = members->if_contains("name");
    if (name == nullptr) return tool.wrong("has no `name`");
    add_function(out, tool.member("name", *name), members->if_contains(schema_name), tool);
    const text::jinja::Dict& given = exact.as_list().items[i].as_dict();
    auto function = std::make_shared<text::jinja::Dict>();
    for (const std::string_view key : {std::string_view("name"), std::string_view("description"), schema_name})
      if (const text::ChatValue* v = given.find(key); v != nullptr && !v->is_none())
        function->set(text::ChatValue::text(key == schema_name ? "parameters" : std::string(key)), *v);
    shown_tools.push_back(object_of({{"type", text::ChatValue::text("function")}, {"function", text::ChatValue(function)}}));
  }
  if (!in.failed() && !shown_tools.empty()) out.prompt.tools = list_of(shown_tools);
}

void read_tools(FieldReader& in, ChatRequest& out) {
  const boost::json::array* tools = in.array(in.limits().tools);
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size() && !in.failed(); ++i) {
    FieldReader tool = in.item(i, (*tools)[i]);
    const boost::json::object* members = tool.object();
    if (members == nullptr) return;
    const auto* type = members->if_contains("type");
    if (type != nullptr && !(type->is_string() && type->get_string() == "function"))
      return tool.member("type", *type).unsupported(fmt::format("is {}; tools must be of the type 'function'", shown(*type)));
    const auto* function = members->if_contains("function");
    if (function == nullptr) return tool.wrong("has no `function`");
    FieldReader owner = tool.member("function", *function);
    const boost::json::object* parts = owner.object();
    if (parts == nullptr) return;
    const auto* name = parts->if_contains("name");
    if (name == nullptr) return owner.wrong("has no `name`");
    add_function(out, owner.member("name", *name), parts->if_contains("parameters"), owner);
  }
  if (in.failed() || tools->empty()) return;
  out.prompt.tools = template_value(in);
}

void read_tool_choice(FieldReader& in, ChatRequest& out) {
  using Choice = Tools::Choice;
  constexpr std::string_view kForms = "it must be 'auto', 'none', 'required' or {\"type\": \"function\", \"function\": {\"name\": ...}}";
  if (in.value().is_string()) {
    const std::string_view word = in.value().get_string();
    if (word == "auto") return;
    if (word == "none") {
      out.tools.choice = Choice::kNone;
      return;
    }
    if (word == "required") {
      out.tools.choice = Choice::kRequired;
      return;
    }
    return in.wrong(fmt::format("is {}; {}", shown(in.value()), kForms));
  }
  if (!in.value().is_object()) return in.wrong(fmt::format("is {}; {}", shown(in.value()), kForms));
  const boost::json::object& choice = in.value().get_object();
  const auto* type = choice.if_contains("type");
  if (type == nullptr || !type->is_string()) return in.wrong(fmt::format("has no `type`; {}", kForms));
  if (type->get_string() != "function") return in.member("type", *type).unsupported(fmt::format("is {}; {}", shown(*type), kForms));
  // Responses have the name beside the type.
  const auto* function = choice.if_contains("function");
  const auto* owner = function != nullptr && function->is_object() ? &function->get_object() : &choice;
  const auto* name = owner->if_contains("name");
  if (name == nullptr || !name->is_string()) return in.wrong(fmt::format("names no function; {}", kForms));
  out.tools.choice = Choice::kNamed;
  out.tools.named = std::string(name->get_string());
}

void read_reasoning_effort(FieldReader& in, ChatRequest& out) {
  // The model knows three levels. What lies between goes to the next higher one.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kLevels = {
      {{"none", "low"}, {"minimal", "low"}, {"low", "low"}, {"medium", "high"}, {"high", "high"}, {"xhigh", "max"}, {"max", "max"}}};
  const auto text = in.text(FieldReader::kMostNameBytes);
  if (!text) return;
  const auto* level = std::find_if(kLevels.begin(), kLevels.end(), [&](const auto& l) { return l.first == *text; });
  if (level == kLevels.end())
    return in.wrong(fmt::format("is {}; it must be 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'", shown(in.value())));
  out.reasoning_effort = std::string(*text);
  set_option(out, "reasoning_effort", ChatValue::text(level->second));
  if (*text == "none") set_option(out, "enable_thinking", ChatValue::boolean(false));
}

void set_option(ChatRequest& out, std::string_view name, ChatValue value) {
  for (const auto& option : out.prompt.options)
    if (option.first == name) return;
  out.prompt.options.emplace_back(name, std::move(value));
}

void check_conversation(Reading& reading, ChatRequest& r) {
  check_whole(reading, r);
  if (reading.error) return;
  // Who asks for both is told so below.
  if (r.prompt.continue_final_message &&
      std::find(reading.taken.begin(), reading.taken.end(), "add_generation_prompt") == reading.taken.end())
    r.prompt.add_generation_prompt = false;
  using Choice = Tools::Choice;
  const auto wrong = [&](std::string_view what) { reading.error = ApiError::field("tool_choice", what); };
  if (r.tools.choice == Choice::kRequired && r.tools.empty()) return wrong("is 'required', but there are no tools");
  if (r.tools.choice == Choice::kNamed && !offers(r.tools, r.tools.named))
    return wrong(fmt::format("names '{}', which is not among the tools", r.tools.named.substr(0, 128)));
  if (r.tools.choice == Choice::kNone) {  // what the model is not to call, it is not told of
    r.tools.functions.clear();
    r.prompt.tools = ChatValue();
  }
  if (auto problem = text::find_problem(r.prompt)) {
    const bool media = problem->field.ends_with(".type");
    reading.error =
        media ? ApiError::unsupported(std::move(problem->field), problem->what) : ApiError::field(std::move(problem->field), problem->what);
  }
}

}  // namespace baton::api
