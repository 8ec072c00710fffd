#include "text/template/tagged_text.h"

#include "text/template/meter.h"
#include "text/utf8.h"

namespace baton::text::jinja {

Object::~Object() {
  if (meter_ != nullptr) meter_->give_back(charged_);
}

void Object::charge(size_t bytes) {
  if (meter_ != nullptr && meter_->take_bytes(bytes)) charged_ += bytes;
}

bool TextBuffer::untrusted_at(size_t position) const {
  return (std::upper_bound(edges.begin(), edges.end(), position) - edges.begin()) % 2 == 1;
}

void TextBuffer::append(std::string_view more, bool untrusted) {
  if (more.empty()) return;
  if (untrusted != (edges.size() % 2 == 1)) {
    edges.push_back(static_cast<uint32_t>(bytes.size()));
    charge(sizeof(uint32_t) * 2);  // as vectors grow
  }
  bytes += more;
  if (ascii) ascii = std::all_of(more.begin(), more.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

Text Text::of(std::string_view bytes, bool untrusted) {
  auto buffer = std::make_shared<TextBuffer>();
  buffer->append(bytes, untrusted);
  return {std::move(buffer), 0, bytes.size()};
}

bool Text::ascii() const {
  if (buffer_ == nullptr || buffer_->ascii) return true;
  const std::string_view v = view();
  return std::all_of(v.begin(), v.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

bool Text::any_untrusted() const {
  bool any = false;
  for_each_run(0, size(), [&](size_t, size_t, bool untrusted) { any |= untrusted; });
  return any;
}

std::vector<TextRange> untrusted_ranges(const Text& text) {
  std::vector<TextRange> ranges;
  text.for_each_run(0, text.size(), [&](size_t begin, size_t end, bool untrusted) {
    if (untrusted) ranges.push_back({begin, end});
  });
  return ranges;
}

size_t count_chars(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

size_t char_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at)
    if (!is_continuation(text[at]) && index-- == 0) return at;
  return at;
}

TextBuilder::TextBuilder(Meter& meter) : meter_(meter), buffer_(std::make_shared<TextBuffer>(&meter)) {
  buffer_->charge(sizeof(TextBuffer));
}

TextBuilder::TextBuilder(Meter& meter, const Text& head) : meter_(meter) {
  // Only buffers of this rendering may grow: others are seen by other threads.
  if (head.buffer() != nullptr && head.buffer()->meter() == &meter && head.end() == head.buffer()->bytes.size()) {
    buffer_ = head.buffer();
    begin_ = head.begin();
    return;
  }
  buffer_ = std::make_shared<TextBuffer>(&meter);
  buffer_->charge(sizeof(TextBuffer));
  append(head);
}

bool TextBuilder::take(size_t bytes) {
  constexpr size_t kMostTextBytes = size_t{1} << 30;  // positions have 32 bits
  if (!meter_.take_steps(static_cast<int64_t>(bytes / 32))) return false;
  if (buffer_->bytes.size() + bytes > kMostTextBytes) return meter_.take_bytes(SIZE_MAX);
  const size_t room = buffer_->bytes.capacity();
  if (buffer_->bytes.size() + bytes > room) {
    // Room doubles; that is what must fit.
    const size_t wanted = std::max(buffer_->bytes.size() + bytes, room + room / 2);
    if (!meter_.take_bytes(0) || wanted - room > meter_.limits().live_bytes - meter_.live_bytes()) return meter_.take_bytes(SIZE_MAX);
    buffer_->bytes.reserve(wanted);
    buffer_->charge(buffer_->bytes.capacity() - room);
  }
  return !meter_.exceeded();
}

void TextBuilder::append(std::string_view bytes, bool untrusted) {
  if (take(bytes.size())) buffer_->append(bytes, untrusted);
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  // The bytes are looked up anew for every run: `text` may lie in this very buffer, which moves as it grows.
  text.for_each_run(begin, end, [&](size_t from, size_t to, bool untrusted) {
    if (take(to - from)) buffer_->append(text.view().substr(from, to - from), untrusted);
  });
}

void TextBuilder::append_char(char32_t code, bool untrusted) {
  std::string bytes;
  append_utf8(bytes, code);
  append(bytes, untrusted);
}

void TextBuilder::repeat(std::string_view bytes, size_t times, bool untrusted) {
  for (size_t i = 0; i < times && take(bytes.size()); ++i) buffer_->append(bytes, untrusted);
}

}  // namespace baton::text::jinja
