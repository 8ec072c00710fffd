// What decode and prefill instances say to each other. Plain values; wire.h makes bytes of them.
//
// Messages may be lost, doubled, late and out of order: each makes sense by itself, and saying it again changes nothing.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <variant>
#include <vector>

namespace baton::pd {

using Time = int64_t;  // nanoseconds of the own clock, which never goes back; those of two instances have nothing to do with each other
inline constexpr Time kNever = std::numeric_limits<Time>::max();

using InstanceId = uint32_t;  // of an address: stays when the process there is started again
using Epoch = uint64_t;       // of a process: larger at each start at the same address; 0: not known
using Ticket = uint64_t;      // of an order: from 1 up within a decode process, never used twice
using Tokens = std::shared_ptr<const std::vector<int32_t>>;

struct Process {
  InstanceId instance = 0;
  Epoch epoch = 0;
  auto operator<=>(const Process&) const = default;
};

// What a part brings: pages first ... first + count - 1 of the sequence, or what a slot holds.
struct PartRange {
  int32_t first_page = 0;
  int32_t pages = 0;
  bool slot = false;
};

// Decode to prefill.

struct Order {
  Ticket ticket = 0;
  int32_t landing = 0;  // where the order lies with the decode instance; comes back with every answer
  uint64_t salt = 0;
  bool cache = true;  // the prefill instance may reuse and keep pages of it
  Tokens tokens = {};
  int32_t matched_pages = 0;        // the first ones, which decode has already
  std::vector<int32_t> pages = {};  // where the others go: pages matched_pages ... (tokens + 63) / 64 - 1
  int32_t slot = 0;                 // where the state goes
  Time within = kNever;             // how long the answer is worth anything
};
struct Cancel {
  Ticket ticket = 0;
  int32_t landing = 0;
};
struct Ping {};  // answered by a Grant

// Prefill to decode.

// How many orders of this decode process the prefill process will ever have taken: a total, so that it may be lost or come late.
struct Grant {
  int64_t total = 0;
};
// Comes behind the part's data, by way of the transport.
struct PartLanded {
  Ticket ticket = 0;
  int32_t landing = 0;
  int32_t part = 0;
  PartRange range;
};
enum class Outcome : uint8_t { kDone, kExpired, kFailed };
// None of the order's writes is under way any more.
struct Answer {
  Ticket ticket = 0;
  int32_t landing = 0;
  Outcome outcome = Outcome::kDone;
  int32_t reused_pages = 0;              // that the prefill instance had
  std::vector<uint64_t> checksums = {};  // of the parts, in order of their numbers
};
// The answer to a Cancel, once none of the order's writes is under way.
struct Drained {
  Ticket ticket = 0;
  int32_t landing = 0;
};

using Body = std::variant<Order, Cancel, Ping, Grant, PartLanded, Answer, Drained>;

struct Envelope {
  Process from;
  Process to;  // epoch 0: whoever is there
  // Of decode: no order below this one is open with the receiver, which may forget them.
  Ticket low_water = 0;
  Body body;
};

}  // namespace baton::pd
