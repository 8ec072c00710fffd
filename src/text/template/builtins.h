// Filters, tests, methods and functions by name. Every one takes steps for what it handles, and keeps the origin of text.
#pragma once

#include <string>
#include <string_view>

#include "text/template/render_state.h"

namespace baton::text::jinja {

// Empty, or why a template may not use this filter.
std::string filter_problem(std::string_view name);
bool is_test(std::string_view name);
// Functions that every template knows, such as range; missing if there is none. `unsupported_function`: known to jinja2, refused here.
Value builtin_function(std::string_view name);
bool unsupported_function(std::string_view name);
// Whether any type has this method, and this program runs it; methods that change their object are known and refused when called.
bool is_method(std::string_view name);

Value apply_filter(RenderState& s, std::string_view name, const Value& v, const Arguments& a);
bool apply_test(RenderState& s, std::string_view name, const Value& v, const Arguments& a);
// Macros and loops are the interpreter's.
Value call_function(RenderState& s, const Value& f, const Arguments& a);

// base.name and base[key] as jinja2's sandbox resolves them: undefined where there is neither attribute nor item.
Value attribute(RenderState& s, const Value& base, std::string_view name);
Value item(RenderState& s, const Value& base, const Value& key);
Value slice(RenderState& s, const Value& base, const Value& begin, const Value& end, const Value& step);

// The operators. compare() is for == != < <= > >= in and not in; errors make it false.
Value arithmetic(RenderState& s, std::string_view op, const Value& a, const Value& b);
bool compare(RenderState& s, std::string_view op, const Value& a, const Value& b);
bool contains(RenderState& s, const Value& where, const Value& what);

}  // namespace baton::text::jinja
