// The methods of Python's types.
#pragma once

#include <string_view>

#include "text/template/render_state.h"

namespace baton::text::jinja {

// The name, for good, if the type of `self` has such a method; empty otherwise.
std::string_view method_of(const Value& self, std::string_view name);

Value call_method(RenderState& s, const Value& self, std::string_view name, const Arguments& a);
Value call_text_method(RenderState& s, const Value& self, std::string_view name, const Arguments& a);

// What filters share with methods. `chars` missing or none: white space.
enum class Side { kLeft, kRight, kBoth };
Value stripped(RenderState& s, const Value& self, const Value& chars, Side side);
Text replaced(RenderState& s, const Text& text, std::string_view from, const Text& to, int64_t most);
Text joined(RenderState& s, const Text& separator, const std::vector<Value>& items, bool only_text);
std::vector<Value> split_lines(RenderState& s, const Text& text, bool keep_ends);
Text centered(RenderState& s, const Text& text, int64_t width, const Text& fill);

}  // namespace baton::text::jinja
