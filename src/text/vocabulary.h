// Tokens and their ids, both ways, and the bytes that each id stands for.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace baton::text {

// Built once, then read by any thread.
class Vocabulary {
 public:
  // `token` as it stands in the file. Fails if the token or the id is taken.
  Status add(std::string_view token, int32_t id);

  // From now on the id reads as `token`; it is still found by the text that it was added with. has(id).
  void show_as(int32_t id, std::string token);

  // After the last of these: works out the bytes. `raw`: what a token stands for is its own text, not bytes written in the byte alphabet.
  void finish(bool raw);

  size_t size() const { return ids_.size(); }
  int32_t id_limit() const { return static_cast<int32_t>(tokens_.size()); }  // one above the highest id
  bool has(int32_t id) const { return id >= 0 && id < id_limit() && !tokens_[static_cast<size_t>(id)].empty(); }

  std::optional<int32_t> find(std::string_view token) const;
  std::string_view token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }  // has(id)
  // Empty for ids that do not exist.
  std::string_view bytes(int32_t id) const {
    if (id < 0 || id >= id_limit()) return {};
    const size_t begin = byte_offsets_[static_cast<size_t>(id)];
    return {bytes_.data() + begin, byte_offsets_[static_cast<size_t>(id) + 1] - begin};
  }

 private:
  // Node-based, so that views of the keys stay valid, also when this is moved.
  std::unordered_map<std::string, int32_t> ids_;
  std::deque<std::string> shown_;
  std::vector<std::string_view> tokens_;  // by id, views of the two above; empty: no such id
  std::vector<char> bytes_;
  std::vector<size_t> byte_offsets_;
};

}  // namespace baton::text
