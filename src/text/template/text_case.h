// Text in other cases, and the questions of str about its characters.
#pragma once

#include <string_view>

#include "text/template/render_state.h"

namespace baton::text::jinja {

// What is made of a character has its origin.
Text upper(RenderState& s, const Text& text);
Text lower(RenderState& s, const Text& text);
Text capitalized(RenderState& s, const Text& text);
Text titled(RenderState& s, const Text& text);
Text title_words(RenderState& s, const Text& text);  // as the filter `title` has it, which cuts words at fewer places than str.title()
Text case_swapped(RenderState& s, const Text& text);
Text case_folded(RenderState& s, const Text& text);

// isalpha() and the like, by name.
Value is_class(const Text& text, std::string_view name);

}  // namespace baton::text::jinja
