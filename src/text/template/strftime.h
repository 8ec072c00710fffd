// The time of a rendering, written as strftime of the C library does in the C locale.
#pragma once

#include "text/template/render_state.h"

namespace baton::text::jinja {

// Origins of the format's own characters are kept; what stands for a directive has the origin of its '%'.
Value format_time(RenderState& s, const Text& format);

}  // namespace baton::text::jinja
