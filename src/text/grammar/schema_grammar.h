// JSON schemas and structural tags as they are handed to the grammar library: their strings restated where it takes them wrongly.
#pragma once

#include <boost/json/value.hpp>
#include <functional>
#include <string>

#include "base/result.h"

namespace baton::text {

// The library's own translation of a schema to EBNF.
using SchemaToEbnf = std::function<Result<std::string>(const std::string& schema)>;

// Whether strings of the schema have a pattern or a length. Without them the library does everything right.
bool restricts_strings(const boost::json::value& schema);

// The schema as EBNF, with patterns by pattern_rule, and strings of a given length without control characters, which the library lets
// through.
Result<std::string> schema_grammar(const boost::json::value& schema, const SchemaToEbnf& translate);

// Replaces the schemas of a structural tag that restrict strings by their grammars.
Status restate_schemas(boost::json::value& tag, const SchemaToEbnf& translate);

// Whether all patterns of a schema can be translated.
Status check_patterns(const boost::json::value& schema);

}  // namespace baton::text
