#include "text/template/parser.h"

#include <array>

#include "text/template/builtins.h"
#include "text/template/expression_parser.h"

namespace baton::text::jinja {
namespace {

using Kind = Statement::Kind;
using Names = std::initializer_list<std::string_view>;

class Parser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Ast> run() {
    Ast ast;
    ast.body = body({});
    if (!failed()) check_names();
    if (failed()) return Error{Error::Kind::kUnsupported, error_};
    ast.symbols = std::move(symbols_);
    return ast;
  }

 private:
  // Up to a tag of one of these names, which is then the current token; or up to the end of the template.
  Body body(Names ends) {
    const Nesting nesting(*this);
    Body out;
    while (!failed() && !at(Token::Kind::kEnd)) {
      const Token t = next();
      switch (t.kind) {
        case Token::Kind::kData: {
          Statement& s = out.emplace_back();
          s.line = t.line;
          s.constant = Value::text(t.text);
          break;
        }
        case Token::Kind::kOutputBegin: {
          out.push_back(statement(Kind::kOutput, t.line));
          out.back().expression = tuple();
          expect(Token::Kind::kOutputEnd, "'}}'");
          break;
        }
        default:
          for (const std::string_view end : ends)
            if (at_name(end)) return out;
          tag(out);
          expect(Token::Kind::kTagEnd, "'%}'");
      }
    }
    if (ends.size() > 0 && !failed()) fail(fmt::format("the template ends where a tag '{}' is expected", *(ends.end() - 1)));
    return out;
  }

  // Behind the opening tag: its end, the body, and the closing tag but for its end.
  Body block(Names ends) {
    skip_operator(":");
    expect(Token::Kind::kTagEnd, "'%}'");
    return body(ends);
  }
  Body closed_block(std::string_view end) {
    Body b = block({end});
    next();
    return b;
  }

  static Statement statement(Kind kind, int line) {
    Statement s;
    s.kind = kind;
    s.line = line;
    return s;
  }

  void tag(Body& out) {
    const Token name = now();
    expect(Token::Kind::kName, "the name of a tag");
    const int line = name.line;
    if (name.text == "if") return if_tag(out, line);
    if (name.text == "for") return for_tag(out, line);
    if (name.text == "set") return set_tag(out, line);
    if (name.text == "macro") return macro_tag(out, line);
    if (name.text == "call") return call_tag(out, line);
    if (name.text == "with") return with_tag(out, line);
    if (name.text == "filter") {
      out.push_back(statement(Kind::kFilterBlock, line));
      out.back().expression = filters(nullptr, true);
      const Loops loops(*this, 0);
      out.back().body = closed_block("endfilter");
      return;
    }
    if (name.text == "generation") {
      out.push_back(statement(Kind::kScope, line));
      const Loops loops(*this, 0);
      out.back().body = closed_block("endgeneration");
      return;
    }
    if (name.text == "block") return block_tag(out, line);
    if (name.text == "print") {
      out.push_back(statement(Kind::kOutput, line));
      out.back().expression = tuple();
      return;
    }
    if (name.text == "break" || name.text == "continue") {
      if (loops_ == 0) fail_at(line, fmt::format("'{}' stands outside of a loop", name.text));
      out.push_back(statement(name.text == "break" ? Kind::kBreak : Kind::kContinue, line));
      return;
    }
    for (const std::string_view other : {"include", "import", "from", "extends"})
      if (name.text == other) return fail_at(line, fmt::format("'{}' reads other files, which chat templates may not", other));
    for (const std::string_view other : {"do", "debug", "trans", "pluralize", "autoescape"})
      if (name.text == other) return fail_at(line, fmt::format("the tag '{}' is not supported", other));
    fail_at(line, fmt::format("the tag '{}' is not known, or nothing that it could end is open", name.text));
  }

  void if_tag(Body& out, int line) {
    Statement s = statement(Kind::kIf, line);
    while (!failed()) {
      ExpressionPtr condition = tuple(false);
      s.branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
      const Token t = next();
      if (t.text == "elif") continue;
      if (t.text == "else") s.branches.emplace_back(nullptr, closed_block("endif"));
      break;
    }
    out.push_back(std::move(s));
  }

  // How many loops are open within the innermost function body: break and continue do not leave one.
  class Loops {
   public:
    Loops(Parser& p, int now) : parser_(p), before_(p.loops_) { p.loops_ = now; }
    Loops(const Loops&) = delete;
    Loops& operator=(const Loops&) = delete;
    ~Loops() { parser_.loops_ = before_; }

   private:
    Parser& parser_;
    int before_;
  };

  void for_tag(Body& out, int line) {
    Statement s = statement(Kind::kFor, line);
    s.target = target("in", false);
    if (!skip_name("in")) fail("'in' is expected");
    s.expression = tuple(false, "recursive");
    if (skip_name("if")) s.condition = expression();
    s.recursive = skip_name("recursive");
    {
      const Loops loops(*this, loops_ + 1);
      s.body = block({"else", "endfor"});
    }
    if (next().text == "else") s.other = closed_block("endfor");
    out.push_back(std::move(s));
  }

  void set_tag(Body& out, int line) {
    Statement s = statement(Kind::kSet, line);
    s.target = target("", true);
    if (skip_operator("=")) {
      s.expression = tuple();
    } else {
      s.kind = Kind::kSetBlock;
      if (at_operator("|")) s.expression = filters(nullptr, false);
      const Loops loops(*this, loops_);
      s.body = closed_block("endset");
    }
    out.push_back(std::move(s));
  }

  void parameters(Statement& s) {
    expect_operator("(");
    while (!at_operator(")") && !failed()) {
      if (!s.parameters.empty()) expect_operator(",");
      const int line = now().line;
      Statement::Parameter p;
      p.name = name_target();
      p.symbol = symbol(p.name);
      given_names_.insert(p.name);
      if (skip_operator("="))
        p.fallback = expression();
      else if (!s.parameters.empty() && s.parameters.back().fallback != nullptr)
        fail_at(line, "a parameter without a default follows one that has one");
      s.parameters.push_back(std::move(p));
    }
    expect_operator(")");
  }

  void macro_body(Statement& s, std::string_view end) {
    open_macros_.emplace_back();
    const Loops loops(*this, 0);
    s.body = closed_block(end);
    s.uses_caller = open_macros_.back().caller;
    s.uses_varargs = open_macros_.back().varargs;
    s.uses_kwargs = open_macros_.back().kwargs;
    open_macros_.pop_back();
  }

  void macro_tag(Body& out, int line) {
    Statement s = statement(Kind::kMacro, line);
    const std::string name = name_target();
    s.constant = Value::text(name);
    s.symbol = symbol(name);
    given_names_.insert(name);
    parameters(s);
    macro_body(s, "endmacro");
    out.push_back(std::move(s));
  }

  void call_tag(Body& out, int line) {
    Statement s = statement(Kind::kCall, line);
    s.constant = Value::text("caller");
    if (at_operator("(")) parameters(s);
    s.expression = expression();
    if (s.expression->kind != Expression::Kind::kCall) fail_at(line, "'call' needs the call of a macro");
    macro_body(s, "endcall");
    out.push_back(std::move(s));
  }

  void with_tag(Body& out, int line) {
    Statement s = statement(Kind::kWith, line);
    while (!at(Token::Kind::kTagEnd) && !at_operator(":") && !failed()) {
      if (!s.assignments.empty()) expect_operator(",");
      ExpressionPtr to = target("", false);
      expect_operator("=");
      s.assignments.emplace_back(std::move(to), expression());
    }
    s.body = closed_block("endwith");
    out.push_back(std::move(s));
  }

  void block_tag(Body& out, int line) {
    Statement s = statement(Kind::kScope, line);
    const std::string name = now().text;
    expect(Token::Kind::kName, "the name of the block");
    s.at_root = !skip_name("scoped");
    const Loops loops(*this, 0);
    s.body = closed_block("endblock");
    skip_name(name);
    out.push_back(std::move(s));
  }

  void check_names() {
    for (const Use& use : called_names_) {
      if (unsupported_function(use.name)) return fail_at(use.line, fmt::format("the function '{}' is not supported", use.name));
      constexpr std::array<std::string_view, 2> kGiven = {"caller", "loop"};
      const bool known = !builtin_function(use.name).is_missing() || given_names_.contains(use.name) ||
                         std::find(kGiven.begin(), kGiven.end(), use.name) != kGiven.end();
      if (!known) return fail_at(use.line, fmt::format("there is no function '{}'", use.name));
    }
    for (const Use& use : called_attributes_)
      if (!is_method(use.name) && !given_attributes_.contains(use.name))
        return fail_at(use.line, fmt::format("there is no method '{}'", use.name));
  }

  int loops_ = 0;
};

}  // namespace

Result<Ast> parse_template(std::string_view source) {
  if (source.size() > kMostTemplateBytes)
    return Error{Error::Kind::kExhausted,
                 fmt::format("the template has {} bytes, more than the {} that are accepted", source.size(), kMostTemplateBytes)};
  BATON_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace baton::text::jinja
