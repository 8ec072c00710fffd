#include "text/template/template.h"

#include <unordered_map>

#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/parser.h"

namespace baton::text::jinja {

struct Template::State {
  Ast ast;
  std::unordered_map<std::string, Symbol> symbol_of;
  std::vector<Value> builtins;  // by symbol
  Interpreter::GivenNames given;
};

Template::Template(std::unique_ptr<State> state) : state_(std::move(state)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::parse(std::string_view source) {
  auto state = std::make_unique<State>();
  BATON_ASSIGN(state->ast, parse_template(source));
  std::vector<std::string>& names = state->ast.symbols;
  for (const std::string_view given : {"loop", "caller", "varargs", "kwargs"})
    if (std::find(names.begin(), names.end(), given) == names.end()) names.emplace_back(given);
  for (const std::string& name : names) {
    state->symbol_of.emplace(name, static_cast<Symbol>(state->builtins.size()));
    state->builtins.push_back(builtin_function(name));
  }
  const auto symbol = [&](const char* name) { return state->symbol_of.at(name); };
  state->given = {symbol("loop"), symbol("caller"), symbol("varargs"), symbol("kwargs")};
  return Template(std::move(state));
}

std::variant<Rendered, Failure> Template::render(std::span<const std::pair<std::string, Value>> variables,
                                                 const RenderOptions& options) const {
  RenderState s(options.limits, options.now);
  std::vector<Value> context = state_->builtins;
  for (const auto& [name, value] : variables)
    if (const auto at = state_->symbol_of.find(name); at != state_->symbol_of.end()) context[static_cast<size_t>(at->second)] = value;
  Rendered out;
  {
    TextBuilder text(s.meter());
    Interpreter(state_->ast, context, state_->given, s).run(text);
    if (!s.failed()) {
      const Text whole = text.finish();
      out.text = whole.view();
      out.untrusted = untrusted_ranges(whole);
    }
  }
  if (s.failed()) return *s.failure();
  return out;
}

bool Template::mentions(std::string_view name) const { return state_->symbol_of.contains(std::string(name)); }

}  // namespace baton::text::jinja
