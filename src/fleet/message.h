// What instances of a fleet send each other over HTTP, as bytes: a decode instance introduces itself, and both send messages of the
// hand-over in batches. Little-endian, each with a version; refused as a whole if anything is wrong.
//
//   POST /fleet/meet       a Meeting   -> a Reply    decode calls prefill, which can write to it from then on
//   POST /fleet/messages   a Batch     -> a Reply    both ways; an empty one asks whether the other is still there
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pd/message.h"

namespace baton::fleet {

inline constexpr size_t kMostUrlBytes = 1024;
inline constexpr size_t kMostMessages = 4096;  // of a batch

struct Meeting {
  pd::Process from;
  // How `from` is called back: at this URL or, if that is empty, at `port` of the address that the call comes from.
  std::string url = {};
  uint16_t port = 0;
  bool tls = false;
  std::vector<std::byte> introduction = {};  // of its transport
};

struct Batch {
  pd::Process from;
  pd::Process to;  // another process at that address takes nothing of it
  std::vector<std::span<const std::byte>> messages = {};
};

struct Reply {
  pd::Process self;    // who answers
  bool known = false;  // the caller has met it
  bool ready = false;  // it takes orders
};

std::string encode(const Meeting& meeting);
std::string encode(const Batch& batch);
std::string encode(const Reply& reply);

// What stands in it lies in `bytes`.
Result<Meeting> read_meeting(std::string_view bytes);
Result<Batch> read_batch(std::string_view bytes);
Result<Reply> read_reply(std::string_view bytes);

}  // namespace baton::fleet
