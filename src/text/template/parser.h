// Tokens to a tree, by the grammar of jinja2 3.1 with loopcontrols and {% generation %}. What is not supported is refused by its name
// and line.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/template/ast.h"

namespace baton::text::jinja {

Result<Ast> parse_template(std::string_view source);

}  // namespace baton::text::jinja
