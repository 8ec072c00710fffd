// A grammar as a constraint.
#pragma once

#include "engine/constraint.h"
#include "text/grammar.h"

namespace baton::engine {

// Over once the grammar has accepted a stop id.
std::unique_ptr<Constraint> constrain(text::GrammarMatcher matcher);

}  // namespace baton::engine
