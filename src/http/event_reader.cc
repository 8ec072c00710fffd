#include "http/event_reader.h"

#include <utility>

namespace baton::http {

bool EventReader::feed(std::string_view bytes, const std::function<bool(const Event&)>& on_event) {
  while (!stopped_ && !bytes.empty()) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + event_.data.size() > event_bytes_) stopped_ = too_long_ = true;
    if (end == std::string_view::npos || stopped_) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (!end_line(on_event)) stopped_ = true;
  }
  return !stopped_;
}

bool EventReader::end_line(const std::function<bool(const Event&)>& on_event) {
  const std::string kept = std::exchange(line_, {});
  std::string_view line = kept;
  if (std::exchange(first_line_, false) && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (line.empty()) {
    const Event event = std::move(event_);
    event_ = {};
    const bool complete = has_data_;
    has_data_ = false;
    return !complete || on_event(event);
  }
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (has_data_) event_.data += '\n';
    has_data_ = true;
    event_.data += value;
  } else if (field == "event") {
    event_.name = value;
  }
  return true;  // comments, ids and retry times mean nothing here
}

}  // namespace baton::http
