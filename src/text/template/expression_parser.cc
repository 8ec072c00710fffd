#include "text/template/expression_parser.h"

#include <algorithm>
#include <array>

#include "text/template/builtins.h"
#include "text/template/number.h"

namespace baton::text::jinja {

using Kind = Expression::Kind;

Expression::~Expression() {
  std::vector<ExpressionPtr> waiting;
  const auto take = [&](Expression& e) {
    const auto add = [&](ExpressionPtr& p) {
      if (p != nullptr) waiting.push_back(std::move(p));
    };
    for (ExpressionPtr& p : e.parts) add(p);
    for (ExpressionPtr& p : e.call.positional) add(p);
    for (auto& [key, p] : e.call.named) add(p);
    add(e.call.star);
    add(e.call.star_star);
  };
  take(*this);
  while (!waiting.empty()) {
    const ExpressionPtr e = std::move(waiting.back());
    waiting.pop_back();
    take(*e);
  }
}

Token ExpressionParser::next() {
  Token t = now();
  if (!failed_ && at_ + 1 < tokens_.size()) ++at_;
  return t;
}

bool ExpressionParser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

namespace {

std::string shown(const Token& t) {
  switch (t.kind) {
    case Token::Kind::kEnd: return "the end of the template";
    case Token::Kind::kTagEnd: return "'%}'";
    case Token::Kind::kOutputEnd: return "'}}'";
    case Token::Kind::kString: return "a string";
    default: return fmt::format("'{}'", t.text);
  }
}

}  // namespace

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail(fmt::format("'{}' is expected, not {}", op, shown(now())));
}

void ExpressionParser::expect(Token::Kind kind, std::string_view what) {
  if (!at(kind)) fail(fmt::format("{} is expected, not {}", what, shown(now())));
  next();
}

void ExpressionParser::fail_at(int line, std::string message) {
  if (failed_) return;
  failed_ = true;
  error_ = fmt::format("line {}: {}", line, message);
}

Symbol ExpressionParser::symbol(std::string_view name) {
  const auto [at, added] = symbol_of_.emplace(name, static_cast<Symbol>(symbols_.size()));
  if (added) symbols_.emplace_back(name);
  return at->second;
}

ExpressionPtr ExpressionParser::node(Kind kind, int line) {
  auto e = std::make_unique<Expression>();
  e->kind = kind;
  e->line = line;
  return e;
}

ExpressionPtr ExpressionParser::node(Kind kind, int line, ExpressionPtr first, ExpressionPtr second) {
  ExpressionPtr e = node(kind, line);
  e->parts.push_back(std::move(first));
  if (second != nullptr) e->parts.push_back(std::move(second));
  return e;
}

bool ExpressionParser::count_chain(int& links) {
  if (++links > kMostNesting * 2) fail(fmt::format("an expression has more than {} operators in a row", kMostNesting * 2));
  return !failed_;
}

ExpressionPtr ExpressionParser::expression(bool with_if) {
  const Nesting nesting(*this);
  ExpressionPtr e = either();
  int links = 0;
  while (with_if && at_name("if") && count_chain(links)) {
    const int line = next().line;
    ExpressionPtr condition = either();
    ExpressionPtr chosen = node(Kind::kIf, line, std::move(condition), std::move(e));
    chosen->parts.push_back(skip_name("else") ? expression() : nullptr);
    e = std::move(chosen);
  }
  return e;
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr e = both();
  int links = 0;
  while (at_name("or") && count_chain(links)) {
    const int line = next().line;
    e = node(Kind::kOr, line, std::move(e), both());
  }
  return e;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr e = negation();
  int links = 0;
  while (at_name("and") && count_chain(links)) {
    const int line = next().line;
    e = node(Kind::kAnd, line, std::move(e), negation());
  }
  return e;
}

ExpressionPtr ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  const Nesting nesting(*this);
  const int line = next().line;
  return node(Kind::kNot, line, negation());
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr first = sum();
  ExpressionPtr e;
  while (!failed_) {
    std::string op;
    const int line = now().line;
    if (at(Token::Kind::kOperator) && std::find(kComparisons.begin(), kComparisons.end(), now().text) != kComparisons.end()) {
      op = next().text;
    } else if (skip_name("in")) {
      op = "in";
    } else if (at_name("not") && ahead().kind == Token::Kind::kName && ahead().text == "in") {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    if (e == nullptr) e = node(Kind::kCompare, line, std::move(first));
    e->operators.push_back(std::move(op));
    e->parts.push_back(sum());
  }
  return e != nullptr ? std::move(e) : std::move(first);
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr e = concatenation();
  int links = 0;
  while ((at_operator("+") || at_operator("-")) && count_chain(links)) {
    const Token op = next();
    e = node(Kind::kArithmetic, op.line, std::move(e), concatenation());
    e->name = op.text;
  }
  return e;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr first = product();
  if (!at_operator("~")) return first;
  ExpressionPtr e = node(Kind::kConcat, now().line, std::move(first));
  while (skip_operator("~")) e->parts.push_back(product());
  return e;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr e = power();
  int links = 0;
  while ((at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) && count_chain(links)) {
    const Token op = next();
    e = node(Kind::kArithmetic, op.line, std::move(e), power());
    e->name = op.text;
  }
  return e;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr e = unary(true);
  int links = 0;
  while (at_operator("**") && count_chain(links)) {
    const int line = next().line;
    e = node(Kind::kArithmetic, line, std::move(e), unary(true));
    e->name = "**";
  }
  return e;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionPtr e;
  if (at_operator("-") || at_operator("+")) {
    const Token op = next();
    e = node(op.text == "-" ? Kind::kNegative : Kind::kPositive, op.line, unary(false));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filters ? filters_and_tests(std::move(e)) : std::move(e);
}

ExpressionPtr ExpressionParser::constant() {
  const Token t = next();
  ExpressionPtr e = node(Kind::kConstant, t.line);
  switch (t.kind) {
    case Token::Kind::kString: {
      std::string text = t.text;
      while (at(Token::Kind::kString)) text += next().text;
      e->constant = Value::text(text);
      break;
    }
    case Token::Kind::kFloat: e->constant = Value::real(parse_float(t.text).value_or(0)); break;
    default:
      if (const auto i = parse_integer(t.text, 0))
        e->constant = *i;
      else
        fail_at(t.line, "a whole number has too many digits");
  }
  return e;
}

ExpressionPtr ExpressionParser::primary() {
  const Token t = now();
  switch (t.kind) {
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: return constant();
    case Token::Kind::kName: {
      next();
      ExpressionPtr e = node(Kind::kConstant, t.line);
      if (t.text == "true" || t.text == "True") {
        e->constant = Value::boolean(true);
      } else if (t.text == "false" || t.text == "False") {
        e->constant = Value::boolean(false);
      } else if (t.text == "none" || t.text == "None") {
        e->constant = Value::none();
      } else {
        e->kind = Kind::kName;
        e->symbol = symbol(t.text);
        e->name = t.text;
        for (MacroUse& m : open_macros_) {
          m.caller |= t.text == "caller";
          m.varargs |= t.text == "varargs";
          m.kwargs |= t.text == "kwargs";
        }
      }
      return e;
    }
    case Token::Kind::kOperator:
      if (t.text == "(") {
        next();
        ExpressionPtr e = tuple(true, "", true);
        expect_operator(")");
        return e;
      }
      if (t.text == "[" || t.text == "{") return bracketed();
      break;
    default: break;
  }
  fail(fmt::format("an expression is expected, not {}", shown(t)));
  return node(Kind::kConstant, t.line);
}

ExpressionPtr ExpressionParser::bracketed() {
  const Token open = next();
  const bool is_dict = open.text == "{";
  const std::string_view close = is_dict ? "}" : "]";
  ExpressionPtr e = node(is_dict ? Kind::kDict : Kind::kList, open.line);
  while (!at_operator(close) && !failed_) {
    if (!e->parts.empty()) expect_operator(",");
    if (at_operator(close)) break;
    e->parts.push_back(expression());
    if (!is_dict) continue;
    if (const Value& key = e->parts.back()->constant; key.is_string()) given_attributes_.emplace(key.view());
    expect_operator(":");
    e->parts.push_back(expression());
  }
  expect_operator(close);
  return e;
}

ExpressionPtr ExpressionParser::tuple(bool with_if, std::string_view end_name, bool in_parentheses) {
  const Nesting nesting(*this);
  const int line = now().line;
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (!failed_) {
    if (!parts.empty()) expect_operator(",");
    if (at(Token::Kind::kOutputEnd) || at(Token::Kind::kTagEnd) || at_operator(")") || (!end_name.empty() && at_name(end_name))) break;
    parts.push_back(expression(with_if));
    if (!at_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts[0]);
  if (!is_tuple && !in_parentheses) fail(fmt::format("an expression is expected, not {}", shown(now())));
  ExpressionPtr e = node(Kind::kTuple, line);
  e->parts = std::move(parts);
  return e;
}

std::string ExpressionParser::name_target() {
  const Token t = now();
  expect(Token::Kind::kName, "a name");
  constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), t.text) != kConstants.end())
    fail_at(t.line, fmt::format("'{}' cannot be assigned to", t.text));
  return t.text;
}

ExpressionPtr ExpressionParser::target(std::string_view end_name, bool with_namespace) {
  const Nesting nesting(*this);
  const int line = now().line;
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (!failed_) {
    if (!parts.empty()) expect_operator(",");
    if (at(Token::Kind::kTagEnd) || at_operator(")") || at_operator("=") || (!end_name.empty() && at_name(end_name))) break;
    if (skip_operator("(")) {
      parts.push_back(target("", with_namespace));
      expect_operator(")");
    } else {
      ExpressionPtr e = node(Kind::kName, now().line);
      e->name = name_target();
      e->symbol = symbol(e->name);
      if (with_namespace && skip_operator(".")) {
        e->kind = Kind::kNamespaceAttribute;
        e->name = now().text;
        expect(Token::Kind::kName, "a name");
        given_attributes_.insert(e->name);
      } else {
        given_names_.insert(e->name);
      }
      parts.push_back(std::move(e));
    }
    if (!at_operator(",")) break;
    is_tuple = true;
  }
  if (parts.empty()) fail(fmt::format("a name is expected, not {}", shown(now())));
  if (!is_tuple && !parts.empty()) return std::move(parts[0]);
  ExpressionPtr e = node(Kind::kTuple, line);
  e->parts = std::move(parts);
  return e;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr base) {
  int links = 0;
  while (count_chain(links)) {
    if (at_operator(".") || at_operator("["))
      base = subscript(std::move(base));
    else if (at_operator("("))
      base = call(std::move(base));
    else
      break;
  }
  return base;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr base) {
  const Token open = next();
  if (open.text == ".") {
    const Token t = now();
    if (t.kind == Token::Kind::kInteger) return node(Kind::kItem, open.line, std::move(base), constant());
    expect(Token::Kind::kName, "a name or a number");
    ExpressionPtr e = node(Kind::kAttribute, open.line, std::move(base));
    e->name = t.text;
    return e;
  }
  std::vector<ExpressionPtr> keys;
  while (!at_operator("]") && !failed_) {
    if (!keys.empty()) expect_operator(",");
    const int line = now().line;
    ExpressionPtr begin = at_operator(":") ? nullptr : expression();
    if (!skip_operator(":")) {
      keys.push_back(std::move(begin));
      continue;
    }
    ExpressionPtr slice = node(Kind::kSlice, line);
    const auto part = [&]() -> ExpressionPtr { return at_operator(":") || at_operator("]") || at_operator(",") ? nullptr : expression(); };
    slice->parts.push_back(std::move(begin));
    slice->parts.push_back(part());
    slice->parts.push_back(skip_operator(":") ? part() : nullptr);
    keys.push_back(std::move(slice));
  }
  expect_operator("]");
  if (keys.size() == 1) return node(Kind::kItem, open.line, std::move(base), std::move(keys[0]));
  if (std::any_of(keys.begin(), keys.end(), [](const ExpressionPtr& k) { return k != nullptr && k->kind == Kind::kSlice; }))
    fail_at(open.line, "slices of several dimensions are not supported");
  ExpressionPtr key = node(Kind::kTuple, open.line);
  key->parts = std::move(keys);
  return node(Kind::kItem, open.line, std::move(base), std::move(key));
}

ExpressionPtr ExpressionParser::call(ExpressionPtr base) {
  ExpressionPtr e = node(Kind::kCall, now().line, std::move(base));
  const Expression& callee = *e->parts[0];
  if (callee.kind == Kind::kName) called_names_.push_back({callee.name, callee.line});
  if (callee.kind == Kind::kAttribute) called_attributes_.push_back({callee.name, callee.line});
  call_arguments(e->call);
  return e;
}

void ExpressionParser::call_arguments(CallArguments& out) {
  const int line = now().line;
  expect_operator("(");
  bool first = true;
  while (!at_operator(")") && !failed_) {
    if (!first) {
      expect_operator(",");
      if (at_operator(")")) break;
    }
    first = false;
    const bool star = at_operator("*"), star_star = at_operator("**");
    const bool named = at(Token::Kind::kName) && ahead().kind == Token::Kind::kOperator && ahead().text == "=";
    const bool in_order = star_star ? out.star_star == nullptr
                          : star    ? out.star == nullptr && out.star_star == nullptr
                          : named   ? out.star_star == nullptr
                                    : out.star == nullptr && out.star_star == nullptr && out.named.empty();
    if (!in_order) fail_at(line, "the arguments of a call stand in an order that is not possible");
    if (star || star_star) {
      next();
      (star ? out.star : out.star_star) = expression();
    } else if (named) {
      std::string name = next().text;
      next();
      given_attributes_.insert(name);  // of namespace() or dict(), perhaps
      out.named.emplace_back(std::move(name), expression());
    } else {
      out.positional.push_back(expression());
    }
  }
  expect_operator(")");
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr base, bool first_inline) {
  int links = 0;
  while ((first_inline || at_operator("|")) && count_chain(links)) {
    if (!first_inline) next();
    first_inline = false;
    const Token t = now();
    expect(Token::Kind::kName, "the name of a filter");
    ExpressionPtr e = node(Kind::kFilter, t.line, std::move(base));
    e->name = t.text;
    while (skip_operator(".")) e->name += "." + next().text;
    if (const std::string problem = filter_problem(e->name); !problem.empty()) fail_at(t.line, problem);
    if (at_operator("(")) call_arguments(e->call);
    check_names_in(*e);
    base = std::move(e);
  }
  return base;
}

// map('upper') and select('odd') name filters and tests in their arguments.
void ExpressionParser::check_names_in(const Expression& filter) {
  const bool by_attribute = filter.name == "selectattr" || filter.name == "rejectattr";
  const size_t at = by_attribute ? 1 : 0;
  if (filter.call.positional.size() <= at || failed_) return;
  const Value& name = filter.call.positional[at]->constant;
  if (!name.is_string()) return;
  if (filter.name == "map") {
    if (const std::string problem = filter_problem(name.view()); !problem.empty()) fail_at(filter.line, problem);
  } else if (by_attribute || filter.name == "select" || filter.name == "reject") {
    if (!is_test(name.view())) fail_at(filter.line, fmt::format("there is no test '{}'", name.view()));
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr base) {
  int links = 0;
  while (count_chain(links)) {
    if (at_operator("|"))
      base = filters(std::move(base), false);
    else if (at_name("is"))
      base = test(std::move(base));
    else if (at_operator("("))
      base = call(std::move(base));
    else
      break;
  }
  return base;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr base) {
  const int line = next().line;
  const bool negated = skip_name("not");
  ExpressionPtr e = node(Kind::kTest, line, std::move(base));
  e->name = now().text;
  expect(Token::Kind::kName, "the name of a test");
  while (skip_operator(".")) e->name += "." + next().text;
  if (!failed_ && !is_test(e->name)) fail_at(line, fmt::format("there is no test '{}'", e->name));
  // `f is defined` says that the template copes without f.
  if (e->parts[0] != nullptr && e->parts[0]->kind == Kind::kName) given_names_.insert(e->parts[0]->name);
  const bool has_argument = at(Token::Kind::kString) || at(Token::Kind::kInteger) || at(Token::Kind::kFloat) || at_operator("[") ||
                            at_operator("{") || (at(Token::Kind::kName) && !at_name("else") && !at_name("or") && !at_name("and"));
  if (at_operator("(")) {
    call_arguments(e->call);
  } else if (has_argument) {
    if (at_name("is")) fail("tests with 'is' cannot follow each other");
    e->call.positional.push_back(postfix(primary()));
  }
  return negated ? node(Kind::kNot, line, std::move(e)) : std::move(e);
}

}  // namespace baton::text::jinja
