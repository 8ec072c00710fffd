// Python's two ways to format: 'a %s' % values and 'a {}'.format(values). Text of the pattern and of the values keeps its origin.
#pragma once

#include "text/template/render_state.h"

namespace baton::text::jinja {

// `values` is a tuple, a mapping for %(name)s, or a single value.
Value percent_format(RenderState& s, const Value& pattern, const Value& values);
Value brace_format(RenderState& s, const Text& pattern, const Arguments& a);

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct FormatSpec {
  Text fill = Text::of(" ");
  char align = 0;      // < > ^ =, or 0: as the type has it
  char sign = 0;       // + - or a space, or 0: as -
  bool zeros = false;  // a 0 in front of the width: numbers are filled behind their sign
  bool alternate = false;
  char grouping = 0;  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// A number in the style of `spec`; without padding if its width is 0.
std::string format_number(RenderState& s, const Value& number, const FormatSpec& spec);
// `body` in a field. `numeric`: padding may go behind the sign.
void append_padded(RenderState& s, TextBuilder& out, const Text& body, const FormatSpec& spec, bool numeric);

}  // namespace baton::text::jinja
