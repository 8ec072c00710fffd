// Values as JSON, as json.dumps of Python writes them.
#pragma once

#include "text/template/render_state.h"

namespace baton::text::jinja {

struct JsonStyle {
  bool ascii = false;  // other characters as \uXXXX
  bool sort_keys = false;
  bool indented = false;
  Text indent;  // of one level
  Text between_items, behind_key;
};

Text to_json(RenderState& s, const Value& v, const JsonStyle& style);

}  // namespace baton::text::jinja
