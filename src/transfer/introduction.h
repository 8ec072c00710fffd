// What a process says of itself to those that write into its memory: bytes, versioned and checked as a whole.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "transfer/transport.h"

namespace baton::transfer {

inline constexpr uint8_t kIntroductionVersion = 1;

struct Introduction {
  std::string transport;  // "nixl"; only ends of the same transport can meet
  Agent agent;
  // Its pointers are addresses in that process: they are handed on to the transport, and nothing is ever read there.
  Memory memory;
  int32_t device = -1;                  // the GPU that the memory is on, -1: main memory
  uint64_t doormat = 0;                 // address of kDoormatBytes in its main memory that anyone who has met it may write to
  std::vector<std::byte> address = {};  // the transport's own: how the process is reached

  bool operator==(const Introduction& other) const;
};
inline constexpr int64_t kDoormatBytes = 64;

std::vector<std::byte> encode(const Introduction& introduction);
// kInvalid, saying what is wrong: not one of these, damaged, another version, or a memory that cannot be.
Result<Introduction> decode_introduction(std::span<const std::byte> bytes);

// Whether a process of this transport can write to the other: kInvalid if that has another transport, is this instance itself, or has
// another model or layout.
Status check_introduction(const Introduction& other, std::string_view transport, Agent self, const Memory& memory);

}  // namespace baton::transfer
