#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>

#include "base/file.h"
#include "text/chat_origin.h"
#include "text/template/builtins.h"
#include "text/template/characters.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

namespace json = boost::json;
using jinja::Text;
using jinja::Type;

constexpr int64_t kMostConfigBytes = int64_t{64} << 20;
constexpr int kMostRequestDepth = jinja::kMostJsonDepth + 4;

FieldProblem problem(std::string field, std::string what) { return {std::move(field), std::move(what)}; }

std::optional<FieldProblem> part_problem(const ChatValue& part, const std::string& field, bool allow_media) {
  if (part.is_string() || allow_media) return {};
  if (!part.is(Type::kDict)) return problem(field, "is neither text nor an object");
  const ChatValue* type = part.as_dict().find("type");
  if (type == nullptr && part.as_dict().find("text") == nullptr) return problem(field, "has neither a type nor text");
  if (type == nullptr) return {};
  if (!type->is_string()) return problem(field + ".type", "is not text");
  if (type->view() == "text") return {};
  return problem(field + ".type", fmt::format("parts of the type '{}' are not supported; this model reads text only", type->view()));
}

bool is_absent(const ChatValue* value) { return value == nullptr || value->is_missing() || value->is_none(); }

std::optional<FieldProblem> calls_problem(const ChatValue& calls, const std::string& field) {
  if (!calls.is(Type::kList)) return problem(field, "is not a list");
  const auto& items = calls.as_list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", field, i);
    if (!items[i].is(Type::kDict)) return problem(place, "is not an object");
    const ChatValue* function = items[i].as_dict().find("function");
    if (function != nullptr && !function->is(Type::kDict)) return problem(place + ".function", "is not an object");
    const ChatValue& owner = function != nullptr ? *function : items[i];
    const ChatValue* arguments = owner.as_dict().find("arguments");
    if (!is_absent(arguments) && !arguments->is(Type::kDict) && !arguments->is_string())
      return problem(place + (function != nullptr ? ".function.arguments" : ".arguments"), "is neither an object nor text that holds one");
  }
  return {};
}

std::optional<FieldProblem> message_problem(const ChatValue& message, const std::string& field, bool allow_media) {
  if (!message.is(Type::kDict)) return problem(field, "is not an object");
  const ChatValue* role = message.as_dict().find("role");
  if (role == nullptr || !role->is_string()) return problem(field + ".role", "is not there, or not text");
  if (const ChatValue* calls = message.as_dict().find("tool_calls"); !is_absent(calls))
    if (auto p = calls_problem(*calls, field + ".tool_calls")) return p;
  const ChatValue* content = message.as_dict().find("content");
  if (content == nullptr || !content->is(Type::kList)) return {};
  const auto& parts = content->as_list().items;
  for (size_t i = 0; i < parts.size(); ++i)
    if (auto p = part_problem(parts[i], fmt::format("{}.content[{}]", field, i), allow_media)) return p;
  return {};
}

std::optional<FieldProblem> continuation_problem(const ChatRequest& r) {
  if (!r.continue_final_message) return {};
  if (r.add_generation_prompt) return problem("continue_final_message", "excludes add_generation_prompt");
  const auto& messages = r.messages.as_list().items;
  if (messages.empty()) return problem("messages", "is empty, so that there is no final message to continue");
  const std::string field = fmt::format("messages[{}].content", messages.size() - 1);
  const ChatValue* content = messages.back().as_dict().find("content");
  const auto has_text = [](const ChatValue& part) {
    const ChatValue* text = part.is(Type::kDict) ? part.as_dict().find("text") : nullptr;
    return part.is_string() || (text != nullptr && text->is_string());
  };
  if (content != nullptr && content->is_string()) return {};
  if (content != nullptr && content->is(Type::kList) &&
      std::any_of(content->as_list().items.begin(), content->as_list().items.end(), has_text))
    return {};
  return problem(field, "holds no text that could be continued");
}

// Names that a request may not give to variables.
bool reserved(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOwn = {"messages", "tools", "add_generation_prompt", "continue_final_message"};
  return std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end() || !jinja::builtin_function(name).is_missing();
}

std::optional<FieldProblem> options_problem(const ChatRequest& r) {
  for (const auto& [name, value] : r.options) {
    if (reserved(name)) return problem("chat_template_kwargs." + name, "is not a variable that can be set");
    if (value.depth() > kMostRequestDepth) return problem("chat_template_kwargs." + name, "is nested too deep");
  }
  return {};
}

// A copy of an object with one more or another field.
ChatValue with_field(const ChatValue& object, std::string_view name, const ChatValue& value) {
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, old] : object.as_dict().entries) dict->set(key, old);
  dict->set(ChatValue::text(name), value);
  return dict;
}

ChatValue with_item(const ChatValue& list, size_t index, const ChatValue& item) {
  auto copy = std::make_shared<jinja::List>();
  copy->items = list.as_list().items;
  copy->items[index] = item;
  for (const ChatValue& v : copy->items) copy->hold(v);
  return copy;
}

// A call whose arguments, if they are text that holds a JSON object, are that object.
ChatValue with_parsed_arguments_of_call(const ChatValue& call) {
  if (!call.is(Type::kDict)) return call;
  const ChatValue* function = call.as_dict().find("function");
  const ChatValue& owner = function != nullptr ? *function : call;
  const ChatValue* arguments = owner.is(Type::kDict) ? owner.as_dict().find("arguments") : nullptr;
  if (arguments == nullptr || !arguments->is_string()) return call;
  const auto parsed = jinja::parse_json(arguments->view(), true, "arguments");
  if (!parsed.ok() || !parsed->is(Type::kDict)) return call;
  const ChatValue filled = with_field(owner, "arguments", *parsed);
  return function != nullptr ? with_field(call, "function", filled) : filled;
}

ChatValue with_parsed_arguments(const ChatValue& message) {
  const ChatValue* calls = message.as_dict().find("tool_calls");
  if (calls == nullptr || !calls->is(Type::kList)) return message;
  auto changed = std::make_shared<jinja::List>();
  for (const ChatValue& call : calls->as_list().items) {
    changed->items.push_back(with_parsed_arguments_of_call(call));
    changed->hold(changed->items.back());
  }
  return with_field(message, "tool_calls", ChatValue(std::move(changed)));
}

ChatValue with_mark(const ChatValue& text, std::string_view mark) { return Text::of(std::string(text.view()) + std::string(mark)); }

// The last message with `mark` at the end of its content.
ChatValue marked(const ChatValue& message, std::string_view mark) {
  const ChatValue content = *message.as_dict().find("content");
  if (content.is_string()) return with_field(message, "content", with_mark(content, mark));
  const auto& parts = content.as_list().items;
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i].is_string()) return with_field(message, "content", with_item(content, i, with_mark(parts[i], mark)));
    const ChatValue* text = parts[i].is(Type::kDict) ? parts[i].as_dict().find("text") : nullptr;
    if (text != nullptr && text->is_string())
      return with_field(message, "content", with_item(content, i, with_field(parts[i], "text", with_mark(*text, mark))));
  }
  return message;
}

// Ends the text where `mark` begins; its last character is a space, which a template that trims has taken away, and with it the white space
// in front of the mark goes.
bool cut_at(jinja::Rendered& out, std::string_view mark) {
  const size_t at = out.text.rfind(mark.substr(0, mark.size() - 1));
  if (at == std::string::npos) return false;
  size_t end = at;
  if (out.text.compare(at, mark.size(), mark) != 0) {
    while (end > 0) {
      size_t begin = end - 1;
      while (begin > 0 && is_continuation(out.text[begin])) --begin;
      const char* p = out.text.data() + begin;
      if (!jinja::is_space(read_valid_char(p))) break;
      end = begin;
    }
  }
  out.text.resize(end);
  while (!out.untrusted.empty() && out.untrusted.back().begin >= end) out.untrusted.pop_back();
  if (!out.untrusted.empty()) out.untrusted.back().end = std::min(out.untrusted.back().end, end);
  return true;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm t = {};
  localtime_r(&now, &t);
  return t;
}

}  // namespace

std::optional<FieldProblem> find_problem(const ChatRequest& r) {
  if (!r.messages.is(Type::kList)) return problem("messages", "is not a list");
  const auto& messages = r.messages.as_list().items;
  for (size_t i = 0; i < messages.size(); ++i)
    if (auto p = message_problem(messages[i], fmt::format("messages[{}]", i), r.allow_media)) return p;
  if (r.messages.depth() > kMostRequestDepth) return problem("messages", "is nested too deep");
  if (!r.tools.is_missing() && !r.tools.is_none()) {
    if (!r.tools.is(Type::kList)) return problem("tools", "is not a list");
    if (r.tools.depth() > kMostRequestDepth) return problem("tools", "is nested too deep");
    for (size_t i = 0; i < r.tools.as_list().items.size(); ++i) {
      const ChatValue& tool = r.tools.as_list().items[i];
      if (!tool.is(Type::kDict)) return problem(fmt::format("tools[{}]", i), "is not an object");
      const ChatValue* function = tool.as_dict().find("function");
      if (function != nullptr && !function->is(Type::kDict)) return problem(fmt::format("tools[{}].function", i), "is not an object");
    }
  }
  if (auto p = options_problem(r)) return p;
  return continuation_problem(r);
}

Result<jinja::Rendered> ChatTemplate::render(const ChatRequest& request) const {
  if (const auto p = find_problem(request)) {
    const bool media = p->field.ends_with(".type");
    return Error{media ? Error::Kind::kUnsupported : Error::Kind::kInvalid, fmt::format("{}: {}", p->field, p->what)};
  }
  const Named* chosen = choose(request);
  if (chosen == nullptr)
    return Error{Error::Kind::kNotFound,
                 fmt::format("there is no chat template '{}'; there are {}", request.template_name, fmt::join(names(), ", "))};

  std::string mark;
  auto messages = std::make_shared<jinja::List>();
  const auto& given = request.messages.as_list().items;
  for (size_t i = 0; i < given.size(); ++i) {
    ChatValue message = request.parse_arguments ? with_parsed_arguments(given[i]) : given[i];
    if (request.continue_final_message && i + 1 == given.size()) {
      // By an address, so that nobody who writes messages knows the mark.
      mark = fmt::format("\u2063CUT{}\u2063 ", fmt::ptr(messages.get()));
      message = marked(message, mark);
    }
    messages->items.push_back(with_origin(message, request.trust));
    messages->hold(messages->items.back());
  }
  const bool untrusted = !request.trust.everything;
  auto variables = variables_;
  const auto set = [&](const std::string& name, ChatValue value) { variables.emplace_back(name, std::move(value)); };
  set("documents", ChatValue::none());
  const auto is_own_token = [&](const std::string& name) {
    return name.ends_with("_token") && std::any_of(variables_.begin(), variables_.end(), [&](const auto& v) { return v.first == name; });
  };
  for (const auto& [name, value] : request.options)
    if (!is_own_token(name)) set(name, with_origin(value, untrusted));
  set("messages", ChatValue(std::move(messages)));
  set("tools", request.tools.is_missing() ? ChatValue::none() : with_origin(request.tools, untrusted));
  set("add_generation_prompt", ChatValue::boolean(request.add_generation_prompt));
  if (chosen->program.mentions("continue_final_message")) set("continue_final_message", ChatValue::boolean(request.continue_final_message));

  auto result = chosen->program.render(variables, {.now = request.now ? *request.now : local_time(), .limits = limits});
  if (const auto* failure = std::get_if<jinja::Failure>(&result)) {
    if (failure->kind == jinja::Failure::Kind::kRaised)
      return Error{Error::Kind::kInvalid, fmt::format("the chat template refuses the conversation: {}", failure->message)};
    const bool limit = failure->kind == jinja::Failure::Kind::kLimit;
    return Error{limit ? Error::Kind::kExhausted : Error::Kind::kInvalid,
                 fmt::format("{}, line {}: {}", chosen->where, failure->line, failure->message)};
  }
  auto& out = std::get<jinja::Rendered>(result);
  if (request.continue_final_message && !cut_at(out, mark))
    return Error{Error::Kind::kInvalid, "continue_final_message: the chat template does not show the content of the final message"};
  return std::move(out);
}

const ChatTemplate::Named* ChatTemplate::choose(const ChatRequest& r) const {
  const auto find = [&](std::string_view name) {
    const auto at = std::find_if(templates_.begin(), templates_.end(), [&](const Named& n) { return n.name == name; });
    return at == templates_.end() ? nullptr : &*at;
  };
  if (!r.template_name.empty()) return find(r.template_name);
  const Named* for_tools = jinja::truth(r.tools) ? find("tool_use") : nullptr;
  const Named* usual = for_tools != nullptr ? for_tools : find("default");
  return usual != nullptr ? usual : &templates_.front();
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> all;
  for (const Named& n : templates_) all.push_back(n.name);
  return all;
}

void ChatTemplate::set_variable(const std::string& name, ChatValue value) { variables_.emplace_back(name, std::move(value)); }

Status ChatTemplate::add(const std::string& name, std::string_view source, const std::string& where) {
  if (source.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return Error{Error::Kind::kInvalid, fmt::format("{}: the chat template is empty, so every prompt would be", where)};
  auto program = jinja::Template::parse(source);
  if (!program.ok()) return Error{program.error().kind, fmt::format("{}: {}", where, program.error().message)};
  templates_.push_back({name, where, std::move(*program)});
  return {};
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& where) {
  ChatTemplate t;
  BATON_TRY(t.add("default", source, where));
  return t;
}

Status ChatTemplate::read_config(const std::filesystem::path& path, bool with_templates) {
  BATON_ASSIGN(const std::string content, read_regular_file(path, kMostConfigBytes));
  json::error_code error;
  const json::value config = json::parse(content, error);
  const std::string where = path.string();
  if (error || !config.is_object()) return Error{Error::Kind::kInvalid, fmt::format("{}: not a JSON object", where)};
  for (const auto& [key, value] : config.get_object()) {
    if (!key.ends_with("_token")) continue;
    const json::value* text = value.is_object() ? value.get_object().if_contains("content") : &value;
    if (text != nullptr && text->is_string()) set_variable(key, jinja::from_json(*text, false));
  }
  const json::value* given = with_templates ? config.get_object().if_contains("chat_template") : nullptr;
  if (given == nullptr || given->is_null()) return {};
  if (given->is_string()) return add("default", given->get_string(), where + ": chat_template");
  const auto wrong = [&] {
    return Error{Error::Kind::kInvalid, fmt::format("{}: chat_template is neither text nor a list of named templates", where)};
  };
  if (!given->is_array()) return wrong();
  for (const json::value& entry : given->get_array()) {
    const json::value* name = entry.is_object() ? entry.get_object().if_contains("name") : nullptr;
    const json::value* source = entry.is_object() ? entry.get_object().if_contains("template") : nullptr;
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) return wrong();
    const std::string called(name->get_string());
    BATON_TRY(add(called, source->get_string(), fmt::format("{}: chat_template '{}'", where, called)));
  }
  return {};
}

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder, const std::filesystem::path& file) {
  ChatTemplate t;
  const auto config = folder / "tokenizer_config.json", usual = folder / "chat_template.jinja";
  std::error_code ignored;
  const bool has_config = std::filesystem::exists(config, ignored);
  const auto& from = file.empty() ? usual : file;
  const bool has_file = !file.empty() || std::filesystem::exists(usual, ignored);
  if (has_config) BATON_TRY(t.read_config(config, !has_file));
  if (has_file) {
    BATON_ASSIGN(const std::string source, read_regular_file(from, static_cast<int64_t>(jinja::kMostTemplateBytes)));
    BATON_TRY(t.add("default", source, from.string()));
  }
  if (t.templates_.empty())
    return Error{Error::Kind::kNotFound,
                 fmt::format("{}: no chat template; chat_template.jinja or tokenizer_config.json with a chat_template should be there",
                             folder.string())};
  return t;
}

}  // namespace baton::text
