// The grammar of GLM's tool calls for the functions of a request: what it lets through, OutputParser reads as calls whose arguments satisfy
// the functions' schemas.
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/grammar.h"
#include "text/parse/markers.h"

namespace baton::text {

struct ToolFunction {
  std::string name;
  boost::json::value parameters;  // a JSON schema; null: any arguments
};

struct ToolGrammarOptions {
  enum class Choice : uint8_t {
    kAuto,      // text in which calls may stand
    kRequired,  // calls and nothing else, one at least
    kNamed,     // one call of the function `named`
  };
  Choice choice = Choice::kAuto;
  std::string named{};
  bool parallel = true;                                 // more than one call
  std::optional<boost::json::value> response_schema{};  // kAuto: instead of text, JSON of this schema, or calls
};

// A structural tag. Arguments come in the order of the schema, each at most once. Fails with kUnsupported, naming function and place, for
// what calls would not be held to; with kInvalid for functions that cannot be called or are not there. The tokenizer has to have a token
// for every marker: markers that are spelled out cannot be told from text.
Result<GrammarSpec> tool_call_grammar(std::span<const ToolFunction> functions, const ToolGrammarOptions& options,
                                      const OutputMarkup& markup, const Tokenizer& tokenizer);

// Markers that must not come before a grammar begins (GrammarMatcher::Options::not_before): in reasoning, <tool_call> would begin a call.
std::vector<int32_t> tool_markers(const OutputMarkup& markup);

}  // namespace baton::text
