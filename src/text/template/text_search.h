// Finding text in text, in linear time whatever both are.
#pragma once

#include <cstring>
#include <string_view>

namespace baton::text::jinja {

// As std::string_view::find, which is quadratic for text that repeats itself.
inline size_t find_text(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  const void* at = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return at == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

}  // namespace baton::text::jinja
