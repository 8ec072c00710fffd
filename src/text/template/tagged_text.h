// Text that knows the origin of every byte: the template and its operator (trusted), or whoever wrote the messages (untrusted).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace baton::text::jinja {

class Meter;

// What things on the heap have in common: they give back to the meter what they took from it. Shared between values; those that many
// threads see (constants of a template, messages) do not change.
class Object {
 public:
  Object() = default;
  explicit Object(Meter* meter) : meter_(meter) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object();

  // Takes `bytes` more of the meter, if there is one.
  void charge(size_t bytes);
  Meter* meter() const { return meter_; }

 private:
  Meter* meter_ = nullptr;
  size_t charged_ = 0;
};

// Bytes and the places where their origin changes. Grows at its end only, so that texts which show a part of it stay what they are.
struct TextBuffer : Object {
  using Object::Object;
  std::string bytes;
  std::vector<uint32_t> edges;  // ascending; the origin is trusted up to the first, untrusted up to the second, and so on
  bool ascii = true;

  bool untrusted_at(size_t position) const;
  void append(std::string_view more, bool untrusted);
};

// A stretch of a buffer, in UTF-8. Copies share the buffer. 24 bytes.
class Text {
 public:
  Text() = default;
  Text(std::shared_ptr<TextBuffer> buffer, size_t begin, size_t end)
      : buffer_(std::move(buffer)), begin_(static_cast<uint32_t>(begin)), end_(static_cast<uint32_t>(end)) {}
  // A new buffer of one origin, outside of any meter.
  static Text of(std::string_view bytes, bool untrusted = false);

  std::string_view view() const { return buffer_ ? std::string_view(buffer_->bytes).substr(begin_, end_ - begin_) : std::string_view(); }
  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  bool ascii() const;

  // Bytes [begin, end) of this text; both on the edge of a character.
  Text part(size_t begin, size_t end) const { return {buffer_, begin_ + begin, begin_ + end}; }
  bool untrusted_at(size_t position) const { return buffer_->untrusted_at(begin_ + position); }
  bool any_untrusted() const;
  // Calls `use(begin, end, untrusted)` for every stretch of equal origin in [begin, end).
  template <class Use>
  void for_each_run(size_t begin, size_t end, Use use) const;

  const std::shared_ptr<TextBuffer>& buffer() const { return buffer_; }
  uint32_t begin() const { return begin_; }
  uint32_t end() const { return end_; }

 private:
  std::shared_ptr<TextBuffer> buffer_;
  uint32_t begin_ = 0, end_ = 0;
};

// The byte ranges of `text` that are untrusted, ascending and apart.
std::vector<TextRange> untrusted_ranges(const Text& text);

// How many characters; the byte where character `index` begins (the end for the count).
size_t count_chars(std::string_view text);
size_t char_offset(std::string_view text, size_t index);

// Writes a new text from pieces, each with its origin. What does not fit the meter is left out, and the meter remembers.
class TextBuilder {
 public:
  explicit TextBuilder(Meter& meter);
  // Goes on behind `head` in the same buffer where nothing has been added there yet: appending in a loop takes linear time.
  TextBuilder(Meter& meter, const Text& head);

  void append(std::string_view bytes, bool untrusted);
  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t begin, size_t end);
  void append_char(char32_t code, bool untrusted);
  void repeat(std::string_view bytes, size_t times, bool untrusted);
  size_t size() const { return buffer_->bytes.size() - begin_; }
  Text finish() const { return {buffer_, begin_, buffer_->bytes.size()}; }

 private:
  bool take(size_t bytes);
  Meter& meter_;
  std::shared_ptr<TextBuffer> buffer_;
  size_t begin_ = 0;
};

template <class Use>
void Text::for_each_run(size_t begin, size_t end, Use use) const {
  if (begin == end) return;
  // By index: `use` may append to this very buffer.
  const auto& edges = buffer_->edges;
  size_t at = begin_ + begin;
  const size_t stop = begin_ + end;
  auto next = static_cast<size_t>(std::upper_bound(edges.begin(), edges.end(), at) - edges.begin());
  for (; at < stop; ++next) {
    const size_t run_end = next >= edges.size() || edges[next] > stop ? stop : edges[next];
    use(at - begin_, run_end - begin_, next % 2 == 1);
    at = run_end;
  }
}

}  // namespace baton::text::jinja
