// What goes wrong in a simulated world, and when: drawn from a seed, so that the same seed brings the same.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/node.h"

namespace baton::sim {

enum class Fault : uint8_t {
  // By chance, at every message, write or request.
  kLoss,        // a message is lost
  kDouble,      // a message comes twice
  kDelay,       // a message comes seconds late
  kLateWrite,   // a write takes long, and may land when nobody expects it any more
  kWriteError,  // a write fails, and never lands
  kCorrupt,     // a write lands, and not what was sent
  kCancel,      // a client goes
  kDeadline,    // a request has little time
  // At some time, to some instance.
  kCrashPrefill,
  kCrashDecode,
  kPartition,  // two instances do not reach each other
  kHang,       // a process does nothing for a while
  kSlow,       // a device takes many times longer
  // From the start.
  kSkew,  // clocks are hours apart and run at different rates
  // At some time, to some instance, too.
  kDevice,  // a cycle of its device fails, and nobody knows what it left behind
  kCount
};
inline constexpr auto kFaultKinds = static_cast<size_t>(Fault::kCount);

const char* name(Fault fault);
// All of them: bits to leave out, or an unknown name.
bool fault_bit(const std::string& name, uint32_t& bits);

// A fault that happens at some time.
struct Mishap {
  Fault kind;
  Time at = 0;
  Time lasts = 0;
  int32_t victim = 0;  // index of an instance
  int32_t other = 0;   // of a partition
  bool told = false;   // of a crash: the others hear of it at once, not from the process that comes after it
};

// How a world is: sizes and probabilities.
struct Climate {
  int32_t decodes = 1;
  int32_t prefills = 1;
  std::array<double, kFaultKinds> chance{};  // of faults by chance
  double mishaps_per_hour = 0;
  double requests_per_hour = 0;
  int32_t decode_pages = 32, decode_slots = 4, host_slots = 0;
  int32_t prefill_pages = 32, prefill_slots = 2, snapshots = 2;
  int64_t prefill_tokens = 128;
  int64_t growth_tokens = 16;
  int32_t longest_prompt_pages = 5;
  int32_t most_output = 40;
  bool calm = false;  // nothing goes wrong: then every request has to end well
};

Climate climate(uint64_t seed, uint32_t without);
// In order of time, all before `length`.
std::vector<Mishap> mishaps(uint64_t seed, const Climate& c, Time length, uint32_t without);

}  // namespace baton::sim
