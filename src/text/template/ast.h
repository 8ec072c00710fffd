// A parsed template. Immutable, shared by all renderings.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace baton::text::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

// Numbers of names, as the template's table has them.
using Symbol = int;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;  // *list and **dict, or null
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,
    kName,               // symbol
    kList,               // parts
    kTuple,              // parts
    kDict,               // parts: key, value, key, value
    kAttribute,          // parts[0] . name
    kItem,               // parts[0] [ parts[1] ]
    kSlice,              // parts: begin, end, step; null where left out. Only as parts[1] of kItem
    kCall,               // parts[0] ( call )
    kFilter,             // parts[0] | name ( call ); parts[0] is null at the front of a filter block
    kTest,               // parts[0] is name ( call )
    kNegative,           // - parts[0]
    kPositive,           // + parts[0]
    kNot,                //
    kAnd,                // parts[0] and parts[1]
    kOr,                 //
    kArithmetic,         // parts[0] name parts[1], name one of + - * / // % **
    kCompare,            // parts[0] names[0] parts[1] names[1] parts[2] ...
    kConcat,             // all parts, by ~
    kIf,                 // parts: condition, value, other value or null
    kNamespaceAttribute  // symbol . name; only as a target
  };
  Expression() = default;
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  // Not recursive: chains of operators and filters make trees that are deeper than a stack may be.
  ~Expression();

  Kind kind = Kind::kConstant;
  int line = 1;
  Symbol symbol = -1;
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> operators;  // of kCompare
  CallArguments call;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,         // constant
    kOutput,       // expression
    kIf,           // branches; a null condition is else
    kFor,          // target, expression, condition or null, body, other
    kSet,          // target, expression
    kSetBlock,     // target, expression (filters over parts[0] null) or null, body
    kMacro,        // symbol, parameters, body
    kCall,         // expression (a kCall), parameters and body of the caller
    kFilterBlock,  // expression, body
    kWith,         // assignments, body
    kScope,        // body: a block, or what is generated
    kBreak,
    kContinue
  };
  Kind kind = Kind::kText;
  int line = 1;
  Symbol symbol = -1;
  Value constant;
  ExpressionPtr target, expression, condition;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;  // target, value
  struct Parameter {
    Symbol symbol;
    std::string name;
    ExpressionPtr fallback;  // or null
  };
  std::vector<Parameter> parameters;
  bool recursive = false;                                               // of kFor
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;  // of kMacro and kCall
  bool at_root = false;                                                 // of kScope: sees the outermost names only
  Body body, other;
};

struct Ast {
  Body body;
  std::vector<std::string> symbols;
};

}  // namespace baton::text::jinja
