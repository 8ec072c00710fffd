// The HTML escapes of markupsafe.
#pragma once

#include "text/template/tagged_text.h"

namespace baton::text::jinja {

// & < > ' " by their entities; each has the origin of what it stands for.
inline void append_escaped(TextBuilder& out, const Text& text) {
  constexpr std::string_view kFrom = "&<>'\"";
  constexpr std::string_view kTo[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  const std::string_view bytes = text.view();
  size_t copied = 0;
  for (size_t at = bytes.find_first_of(kFrom); at != std::string_view::npos; at = bytes.find_first_of(kFrom, at + 1)) {
    out.append(text, copied, at);
    out.append(kTo[kFrom.find(bytes[at])], text.untrusted_at(at));
    copied = at + 1;
  }
  out.append(text, copied, bytes.size());
}

}  // namespace baton::text::jinja
