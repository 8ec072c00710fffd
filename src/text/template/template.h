// A Jinja template, as chat templates use the language: parsed once, rendered often. docs/chat-templates.md says what it knows.
#pragma once

#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/template/limits.h"
#include "text/template/render_state.h"
#include "text/tokenizer.h"

namespace baton::text::jinja {

struct Ast;

struct Rendered {
  std::string text;                  // UTF-8
  std::vector<TextRange> untrusted;  // bytes that came from untrusted values; ascending and apart, as Tokenizer::encode takes them
};

struct RenderOptions {
  std::tm now = {};  // what strftime_now writes
  Limits limits;
};

// Immutable; any number of threads may render at once. Move-only.
class Template {
 public:
  // Fails for whatever is not known or not supported, with "line N: ..." in the message.
  static Result<Template> parse(std::string_view source);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Variables by name. Their values stay as they are.
  std::variant<Rendered, Failure> render(std::span<const std::pair<std::string, Value>> variables, const RenderOptions& options) const;
  // Whether the template mentions this name anywhere.
  bool mentions(std::string_view name) const;

 private:
  struct State;
  explicit Template(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace baton::text::jinja
