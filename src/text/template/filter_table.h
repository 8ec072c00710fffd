// What a filter is made of.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "text/template/builtins.h"

namespace baton::text::jinja {

using Bound = std::vector<Value>;  // in the order of the parameters; missing where not given

struct FilterEntry {
  std::string_view name;
  Value (*run)(RenderState&, const Value&, const Bound&) = nullptr;
  std::array<std::string_view, 5> parameters = {};  // empty behind the last
  size_t required = 0;
  Value (*free_run)(RenderState&, const Value&, const Arguments&) = nullptr;  // instead, for any arguments

  std::span<const std::string_view> names() const {
    size_t n = 0;
    while (n < parameters.size() && !parameters[n].empty()) ++n;
    return std::span(parameters).first(n);
  }
};

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();

}  // namespace baton::text::jinja
