// A model's chat template: messages, tools and options in, the text of the prompt out, with the origin of each byte.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/template/template.h"

namespace baton::text {

using ChatValue = jinja::Value;  // from jinja::parse_json (exact) or jinja::from_json

// Whose words may become special tokens. Text of user and tool messages never does, unless `everything` says so; the template's own text
// and what the operator sets always may.
struct Trust {
  bool everything = false;  // the behaviour that other servers have
  bool system = true;       // content of system and developer messages
  bool assistant =
      false;  // content, reasoning and calls of assistant messages: a client sends them, and a user can make a model say anything
};

struct ChatRequest {
  ChatValue messages;                                      // a list of objects
  ChatValue tools;                                         // a list; missing or none: no tools
  std::vector<std::pair<std::string, ChatValue>> options;  // variables of the template, as chat_template_kwargs: untrusted
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the text ends where the content of the last message ends; excludes the generation prompt
  // Tool-call arguments that are text holding a JSON object become that object, as templates expect.
  bool parse_arguments = true;
  // Images and other parts that are not text are refused; true leaves them to the template.
  bool allow_media = false;
  std::string template_name;  // of a model that has several; empty: "tool_use" if there are tools and such a template, "default" otherwise
  Trust trust;
  std::optional<std::tm> now;  // of strftime_now; the local time if not given
};

// What is wrong with a request, and which field of it, such as "messages[2].content[1].type".
struct FieldProblem {
  std::string field;
  std::string what;
};

// The first thing in the messages and tools that no template could render, if any. render() refuses such requests with "field: what".
std::optional<FieldProblem> find_problem(const ChatRequest& request);

// Immutable; render() may be called from any thread. Move-only.
class ChatTemplate {
 public:
  // A model's folder: chat_template.jinja, else `chat_template` of tokenizer_config.json (text, or a list of named ones). With `file`, the
  // template is read from there instead. Special tokens such as bos_token come from tokenizer_config.json, if there is one.
  static Result<ChatTemplate> load(const std::filesystem::path& folder, const std::filesystem::path& file = {});
  // `where` names the template in messages.
  static Result<ChatTemplate> parse(std::string_view source, const std::string& where);

  // A variable for every rendering, trusted; those of a request with the same name win, but for special tokens.
  void set_variable(const std::string& name, ChatValue value);

  // Errors: kUnsupported for images and the like, kInvalid for what the template or this class refuses in the request, kExhausted for
  // limits.
  // All are the request's fault, a 400.
  Result<jinja::Rendered> render(const ChatRequest& request) const;

  std::vector<std::string> names() const;
  jinja::Limits limits;

 private:
  struct Named {
    std::string name, where;
    jinja::Template program;
  };
  Status add(const std::string& name, std::string_view source, const std::string& where);
  Status read_config(const std::filesystem::path& path, bool with_templates);
  const Named* choose(const ChatRequest& request) const;

  std::vector<Named> templates_;
  std::vector<std::pair<std::string, ChatValue>> variables_;
};

}  // namespace baton::text
