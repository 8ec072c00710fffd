// baton render: a conversation to the text of its prompt, as a model's chat template says.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "app/commands.h"
#include "base/file.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton::app {
namespace {

namespace json = boost::json;
using text::ChatRequest;
using text::ChatValue;
using text::jinja::Type;

constexpr int64_t kMostInputBytes = int64_t{256} << 20;

struct Arguments {
  std::string model;
  std::string template_file;
  std::string template_name;
  std::string messages_file;
  std::string tools_file;
  std::vector<std::string> system_texts, user_texts;
  std::vector<std::string> options;
  bool no_generation_prompt = false;
  bool continue_final_message = false;
  bool trust_everything = false;
  bool show_origins = false;
  bool ids = false;
  bool json = false;
};

std::string name_of(const std::string& file) { return file == "-" ? "standard input" : file; }

Result<ChatValue> read_json(const std::string& file) {
  BATON_ASSIGN(const std::string content, read_file(file == "-" ? "/dev/stdin" : file, kMostInputBytes));
  return text::jinja::parse_json(content, true, name_of(file));
}

// Arguments may be any bytes; the template engine reads valid UTF-8 only.
ChatValue argument(std::string_view bytes) {
  std::string repaired;
  text::append_lossy(repaired, bytes);
  return ChatValue::text(repaired);
}

ChatValue message(std::string_view role, std::string_view content) {
  auto dict = std::make_shared<text::jinja::Dict>();
  dict->set(ChatValue::text("role"), ChatValue::text(role));
  dict->set(ChatValue::text("content"), argument(content));
  return dict;
}

// A switch of a request's body; text such as "false" would count as true.
Status read_switch(const text::jinja::Dict& body, std::string_view name, const std::string& where, bool& value) {
  const ChatValue* given = body.find(name);
  if (given == nullptr || given->is_none()) return {};
  if (!given->is(Type::kBool)) return Error{Error::Kind::kInvalid, fmt::format("{}: {} is neither true nor false", where, name)};
  value = given->as_bool();
  return {};
}

// A list of messages, or the body of a request that holds one.
Status read_messages(const Arguments& a, ChatRequest& request) {
  if (a.messages_file.empty()) {
    auto list = std::make_shared<text::jinja::List>();
    for (const std::string& t : a.system_texts) list->items.push_back(message("system", t));
    for (const std::string& t : a.user_texts) list->items.push_back(message("user", t));
    for (const ChatValue& v : list->items) list->hold(v);
    request.messages = std::move(list);
    return {};
  }
  BATON_ASSIGN(const ChatValue given, read_json(a.messages_file));
  if (!given.is(Type::kDict)) {
    request.messages = given;
    return {};
  }
  const text::jinja::Dict& body = given.as_dict();
  const std::string where = name_of(a.messages_file);
  const ChatValue* messages = body.find("messages");
  if (messages == nullptr)
    return Error{Error::Kind::kInvalid, fmt::format("{}: neither a list of messages nor an object with 'messages'", where)};
  request.messages = *messages;
  if (const ChatValue* tools = body.find("tools")) request.tools = *tools;
  BATON_TRY(read_switch(body, "add_generation_prompt", where, request.add_generation_prompt));
  BATON_TRY(read_switch(body, "continue_final_message", where, request.continue_final_message));
  if (const ChatValue* v = body.find("reasoning_effort")) request.options.emplace_back("reasoning_effort", *v);
  const ChatValue* options = body.find("chat_template_kwargs");
  if (options == nullptr || options->is_none()) return {};
  if (!options->is(Type::kDict)) return Error{Error::Kind::kInvalid, fmt::format("{}: chat_template_kwargs is not an object", where)};
  for (const auto& [name, value] : options->as_dict().entries) request.options.emplace_back(name.view(), value);
  return {};
}

// name=value, where a value that is JSON is taken as such, and as text otherwise.
Status add_option(const std::string& option, ChatRequest& request) {
  const size_t equals = option.find('=');
  if (equals == std::string::npos || equals == 0)
    return Error{Error::Kind::kInvalid, fmt::format("--option {}: name=value is expected, such as enable_thinking=false", option)};
  const std::string name = option.substr(0, equals), value = option.substr(equals + 1);
  auto parsed = text::jinja::parse_json(value, true, name);
  request.options.emplace_back(name, parsed.ok() ? std::move(*parsed) : argument(value));
  return {};
}

Result<ChatRequest> request_of(const Arguments& a) {
  ChatRequest request;
  BATON_TRY(read_messages(a, request));
  if (!a.tools_file.empty()) {
    BATON_ASSIGN(request.tools, read_json(a.tools_file));
    if (request.tools.is(Type::kDict))
      if (const ChatValue* tools = request.tools.as_dict().find("tools")) request.tools = ChatValue(*tools);
  }
  for (const std::string& option : a.options) BATON_TRY(add_option(option, request));
  if (a.continue_final_message) request.continue_final_message = true;
  if (a.no_generation_prompt || request.continue_final_message) request.add_generation_prompt = false;
  request.template_name = a.template_name;
  request.trust.everything = a.trust_everything;
  return request;
}

// Untrusted stretches between double brackets.
std::string with_brackets(const text::jinja::Rendered& rendered) {
  std::string out;
  size_t at = 0;
  for (const text::TextRange& r : rendered.untrusted) {
    out.append(rendered.text, at, r.begin - at);
    out += "\u27E6" + rendered.text.substr(r.begin, r.end - r.begin) + "\u27E7";
    at = r.end;
  }
  return out.append(rendered.text, at);
}

Status print(const Arguments& a, const text::jinja::Rendered& rendered, const text::Tokenizer* tokenizer) {
  std::vector<int32_t> ids;
  if (tokenizer != nullptr) {
    BATON_ASSIGN(ids, tokenizer->encode(rendered.text, {}, rendered.untrusted));
  }
  std::string out;
  if (a.json) {
    json::object object{{"text", rendered.text}};
    json::array ranges, id_list, tokens;
    for (const text::TextRange& r : rendered.untrusted) ranges.push_back(json::array{r.begin, r.end});
    object["untrusted"] = std::move(ranges);
    for (const int32_t id : ids) {
      id_list.push_back(id);
      tokens.emplace_back(tokenizer->token(id).value_or(""));
    }
    if (tokenizer != nullptr) {
      object["ids"] = std::move(id_list);
      object["tokens"] = std::move(tokens);
    }
    out = json::serialize(object) + "\n";
  } else if (tokenizer != nullptr) {
    for (const int32_t id : ids) fmt::format_to(std::back_inserter(out), "{}{}", out.empty() ? "" : ",", id);
    out += "\n";
  } else {
    out = a.show_origins ? with_brackets(rendered) : rendered.text;  // as it is: without a line end of our own
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
  return {};
}

Status render(const Arguments& a) {
  BATON_ASSIGN(const text::ChatTemplate chat, text::ChatTemplate::load(a.model, a.template_file));
  std::optional<text::Tokenizer> tokenizer;
  if (a.ids) {
    BATON_ASSIGN(tokenizer, text::Tokenizer::load(a.model));
  }
  BATON_ASSIGN(const ChatRequest request, request_of(a));
  BATON_ASSIGN(const text::jinja::Rendered rendered, chat.render(request));
  return print(a, rendered, tokenizer ? &*tokenizer : nullptr);
}

}  // namespace

void add_render(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("render", "Turn a conversation into the text of its prompt, by the model's chat template");
  c->add_option("--model", a->model, "Folder with chat_template.jinja, or tokenizer_config.json with a chat_template")->required();
  c->add_option("--template", a->template_file, "File with another template");
  c->add_option("--template-name", a->template_name, "Which one of a model that has several");
  CLI::Option* messages =
      c->add_option("--messages", a->messages_file, "JSON: a list of messages, or the body of a chat request; - reads standard input");
  c->add_option("--system", a->system_texts, "A system message instead of --messages")->allow_extra_args(false)->excludes(messages);
  CLI::Option* user = c->add_option("--user", a->user_texts, "A user message instead of --messages; may be given several times");
  user->allow_extra_args(false)->excludes(messages);
  c->add_option("--tools", a->tools_file, "JSON: a list of tools");
  c->add_option("--option", a->options, "name=value for the template, such as enable_thinking=false; JSON where the value is")
      ->allow_extra_args(false);
  c->add_flag("--no-generation-prompt", a->no_generation_prompt, "End behind the last message");
  c->add_flag("--continue-final-message", a->continue_final_message, "End within the last message, where its content ends");
  c->add_flag("--trust-everything", a->trust_everything, "Text of users and tools may become special tokens, too");
  CLI::Option* origins =
      c->add_flag("--show-origins", a->show_origins, "Put double brackets around text that never becomes a special token");
  c->add_flag("--ids", a->ids, "Print token ids instead, by the folder's tokenizer.json")->excludes(origins);
  c->add_flag("--json", a->json, "Print JSON: the text, its untrusted byte ranges, with --ids also ids and tokens")->excludes(origins);
  c->callback([a, messages, user, &exit_code] {
    if (messages->count() == 0 && user->count() == 0) throw CLI::RequiredError("--messages or --user");
    exit_code = finish(render(*a));
  });
}

}  // namespace baton::app
