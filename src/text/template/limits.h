// What one rendering may use. The template is the operator's, but its loops run over messages that anyone may send.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::text::jinja {

struct Limits {
  size_t output_bytes = size_t{64} << 20;  // of the rendered text
  size_t live_bytes = size_t{256} << 20;   // of values that exist at once, output included
  int64_t steps = 10'000'000;              // expressions and statements evaluated, plus one for every 32 bytes or 4 items handled
  int depth = 800;                         // of expressions, statements and calls inside each other while rendering
};

// Of templates. Deeper or larger ones are refused when they are read.
constexpr size_t kMostTemplateBytes = size_t{1} << 20;
constexpr int kMostNesting = 100;  // of expressions and of statements

// Of values inside each other: lists of lists, objects of messages.
constexpr int kMostValueDepth = 64;
// Of JSON that becomes a value: templates may put some lists around it.
constexpr int kMostJsonDepth = 40;

// Of integers: some 4,900 decimal digits, a little more than Python prints.
constexpr unsigned kMostIntegerBits = 16384;

// What Python's sandbox allows to range().
constexpr int64_t kMostRangeItems = 100'000;

}  // namespace baton::text::jinja
