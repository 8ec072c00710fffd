// Writing into another process's memory: pages and slots that both have registered, one part at a time, each part with a checksum.
//
// A transport is one process's end. It enters with the process's memory and how that is laid out. A part is a list of pages, or a slot; it
// is posted, crosses, and is over: the sender hears so, the receiver gets the part's notice behind its bytes. Parts are counted, not
// ordered: they may overtake each other.
//
// Whoever posts keeps the source as it is until the part is over. Whoever receives knows from its own protocol which parts may still come;
// what a process that has left was sent goes nowhere, and its sender hears of a failure.
//
// Threads: one at a time for a transport; only what on_event() is given is called from others.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "transfer/slices.h"

namespace baton::transfer {

// A process: `epoch` tells it from others that ran at the same address before.
struct Agent {
  uint32_t instance = 0;
  uint64_t epoch = 0;
  auto operator<=>(const Agent&) const = default;
};

// Equal objects, one behind the other, that may be written from outside.
struct Region {
  std::byte* data = nullptr;
  int64_t object_bytes = 0;
  int32_t objects = 0;
};

// A run of a slot with the part that it belongs to: a bit that the caller chose.
struct SlotRun {
  Run run;
  uint32_t part = 1;
};

struct Memory {
  Region pages;
  Region slots;
  std::vector<Run> page_runs;
  std::vector<SlotRun> slot_runs;
  // What the bytes are of: a model and the types that it is kept in. Processes with different ones hand nothing over.
  uint64_t fingerprint = 0;
};

struct Part {
  Agent to;
  std::vector<int32_t> from_pages = {};
  std::vector<int32_t> to_pages = {};  // as many
  int32_t from_slot = -1;              // -1: no slot
  int32_t to_slot = -1;
  uint32_t slot_parts = 0;
  uint64_t tag = 0;                    // the caller's; comes back when the part is over
  std::vector<std::byte> notice = {};  // for the receiver: at most kMostNoticeBytes
};
inline constexpr int64_t kMostNoticeBytes = 256;

// The part is over, as its sender hears it.
struct Completion {
  uint64_t tag = 0;
  bool ok = false;        // everything is there
  uint64_t checksum = 0;  // of what was sent
};
// The part is there, as its receiver hears it.
struct Arrival {
  Agent from;
  uint64_t checksum = 0;  // of what was sent
  std::vector<std::byte> notice;
};

// Why a part failed.
enum class Failure : uint8_t {
  kGone,     // its receiver had left, or was parted with
  kRefused,  // it could not be written: the connection or the device said so
  kTooLong,  // it was not over in time
  kCount
};
// For metrics: "gone", "refused", "too_long".
const char* name_of(Failure failure);

// Since it entered.
struct Metrics {
  int64_t parts = 0, failed = 0;                                            // posted parts that are over
  std::array<int64_t, static_cast<size_t>(Failure::kCount)> failures = {};  // they sum up to `failed`
  int64_t page_bytes = 0;                                                   // that it sent
  int64_t slot_bytes = 0;
  int64_t arrived = 0;  // parts
  // Of transports between processes.
  int64_t waiting = 0;     // parts that are posted and not over
  int64_t took_ns = 0;     // between post and the end, of all parts that went well together
  int64_t slowest_ns = 0;  // of those
  int64_t peers = 0;       // that can be posted to
  int64_t meetings = 0;    // that went well
  int64_t meetings_failed = 0;
  int64_t garbled = 0;      // notices that were none of ours
  int64_t left_behind = 0;  // writes that could not be ended in time: they were left to the system
};

class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Called, from any thread, when progress() has something to tell that came from outside. Set before enter().
  void on_event(std::function<void()> notify) { notify_ = std::move(notify); }

  // Once. kInvalid: two processes have different models, or nothing in common in their layouts. Memory outlives the stay.
  virtual Status enter(Agent self, Memory memory) = 0;
  // Nothing is written into its memory any more, nor read from it.
  virtual void leave() = 0;

  // kNotFound: the receiver is not here. kInvalid: it has no such pages or slot. Own ids that are not there are a defect.
  virtual Status post(Part part) = 0;
  // Moves on what was posted. What came of it, and from others, is in arrivals() and completions() until the next call.
  virtual void progress() = 0;
  std::span<const Arrival> arrivals() const { return arrivals_; }
  std::span<const Completion> completions() const { return completions_; }

  // Of what lies in the own memory, the same number as the sender's if it is the same: pages in order, or a slot's parts.
  virtual uint64_t checksum(std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const = 0;

  const Metrics& metrics() const { return metrics_; }

 protected:
  std::function<void()> notify_ = [] {};
  Agent self_;     // since it entered
  Memory memory_;  // likewise
  std::vector<Arrival> arrivals_;
  std::vector<Completion> completions_;
  Metrics metrics_;
};

}  // namespace baton::transfer
