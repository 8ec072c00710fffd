// The part of the parser that reads expressions.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/template/ast.h"
#include "text/template/lexer.h"
#include "text/template/limits.h"

namespace baton::text::jinja {

// Errors are sticky: after the first one the parser sees nothing but the end.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  ExpressionPtr expression(bool with_if = true);
  // `a, b` makes a tuple. A name of `ends` ends it, as the end of a tag does.
  ExpressionPtr tuple(bool with_if = true, std::string_view end_name = "", bool in_parentheses = false);
  ExpressionPtr target(std::string_view end_name, bool with_namespace);
  std::string name_target();
  // Filters behind `base`, which may be null. `first_inline`: the first has no bar in front.
  ExpressionPtr filters(ExpressionPtr base, bool first_inline);

  const Token& now() const { return failed_ ? tokens_.back() : tokens_[at_]; }
  const Token& ahead() const { return failed_ || at_ + 1 >= tokens_.size() ? tokens_.back() : tokens_[at_ + 1]; }
  Token next();
  bool at(Token::Kind kind) const { return now().kind == kind; }
  bool at_operator(std::string_view op) const { return at(Token::Kind::kOperator) && now().text == op; }
  bool at_name(std::string_view name) const { return at(Token::Kind::kName) && now().text == name; }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect(Token::Kind kind, std::string_view what);
  Symbol symbol(std::string_view name);
  void fail(std::string message) { fail_at(now().line, std::move(message)); }
  void fail_at(int line, std::string message);
  bool failed() const { return failed_; }

  // Expressions and statements inside each other.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& p) : parser_(p) {
      if (++p.nesting_ > kMostNesting) p.fail(fmt::format("tags or expressions lie inside each other more than {} deep", kMostNesting));
    }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.nesting_; }

   private:
    ExpressionParser& parser_;
  };

  std::vector<std::string> symbols_;
  std::string error_;
  // What can only be judged once the whole template is read: names that are called, with their lines, and names that something gives.
  struct Use {
    std::string name;
    int line;
  };
  std::vector<Use> called_names_, called_attributes_;
  std::unordered_set<std::string> given_names_, given_attributes_;
  // Bodies of macros and call blocks that are open, outermost first: whether they use what only such bodies have.
  struct MacroUse {
    bool caller = false, varargs = false, kwargs = false;
  };
  std::vector<MacroUse> open_macros_;

 private:
  ExpressionPtr node(Expression::Kind kind, int line);
  ExpressionPtr node(Expression::Kind kind, int line, ExpressionPtr first, ExpressionPtr second = nullptr);
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr constant();
  ExpressionPtr postfix(ExpressionPtr base);
  ExpressionPtr subscript(ExpressionPtr base);
  ExpressionPtr bracketed();
  ExpressionPtr call(ExpressionPtr base);
  void call_arguments(CallArguments& out);
  void check_names_in(const Expression& filter);
  ExpressionPtr filters_and_tests(ExpressionPtr base);
  ExpressionPtr test(ExpressionPtr base);
  // Operators in a row: the tree gets as deep, and is walked recursively.
  bool count_chain(int& links);

  std::vector<Token> tokens_;  // the last one is kEnd
  size_t at_ = 0;
  int nesting_ = 0;
  bool failed_ = false;
  std::unordered_map<std::string, Symbol> symbol_of_;
};

}  // namespace baton::text::jinja
