// Messages between a grammar worker and its parent: a length, then so many bytes; within them numbers and strings one after the other.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace baton::text {

inline constexpr uint32_t kMostMessageBytes = 256U << 20;

class MessageWriter {
 public:
  void number(int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void string(std::string_view text) {
    number(static_cast<int64_t>(text.size()));
    bytes_ += text;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Both ends are the same program: a message that does not read as expected is a defect, and reads as zeros.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}
  int64_t number() {
    int64_t value = 0;
    if (rest_.size() < sizeof value) return 0;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view string() {
    const auto size = static_cast<size_t>(number());
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(text.size());
    return text;
  }

 private:
  std::string_view rest_;
};

// Blocking; false or nothing if the other end is gone.
bool send_message(int socket, std::string_view bytes);
std::optional<std::string> receive_message(int socket);

}  // namespace baton::text
