// JSON schemas that a client sent: whether output can be held to all that they say.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "base/result.h"

namespace baton::text {

// `where` names the schema in messages. The library that compiles schemas looks at one of $ref, const, enum, anyOf, oneOf, allOf and type,
// in this order, and passes silently over what stands beside it; other keywords it does not know. Both are refused here, by name and
// place: output that only seems to keep to a schema is worse than an error. Also refused: references that lead nowhere or in a circle,
// schemas that no finite value satisfies, and numbers beyond what can be counted to.
Status check_schema(const boost::json::value& schema, const std::string& where);

}  // namespace baton::text
