// What can be said against a grammar before it is compiled: at once, and with a reason that a client understands.
#pragma once

#include "text/grammar.h"

namespace baton::text {

inline constexpr size_t kMostJsonNesting = 160;  // of schemas and structural tags

// Refuses what is too long or no valid UTF-8; JSON that is none; and schemas that are too deep, refer to what is not there or to themselves
// without end, count higher than can be compiled, or say something that the output would not be held to. Takes time linear in the text.
Status check_grammar_spec(const GrammarSpec& spec, const GrammarLimits& limits);

}  // namespace baton::text
