// From the bytes of an event stream (text/event-stream) to its events, for clients. A state machine over pieces of any size.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace baton::http {

struct Event {
  std::string name = {};  // of its "event:" line, or empty
  std::string data = {};  // of its "data:" lines, joined by line feeds
};

class EventReader {
 public:
  explicit EventReader(size_t event_bytes = 16 << 20) : event_bytes_(event_bytes) {}

  // Calls `on_event` for every event that is complete. False, for good, once it returns false or an event is longer than event_bytes.
  bool feed(std::string_view bytes, const std::function<bool(const Event&)>& on_event);
  bool too_long() const { return too_long_; }
  // Whether the stream ended in the middle of an event.
  bool partial() const { return !line_.empty() || has_data_; }

 private:
  bool end_line(const std::function<bool(const Event&)>& on_event);

  const size_t event_bytes_;
  std::string line_;
  Event event_;
  bool has_data_ = false;
  bool after_return_ = false;  // a line feed right behind a carriage return belongs to it
  bool first_line_ = true;
  bool stopped_ = false;
  bool too_long_ = false;
};

}  // namespace baton::http
