// What goes behind a write as NIXL's notice: who sent it, the checksum of the part, and the caller's own bytes.
//
// Threads: values.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transfer/transport.h"

namespace baton::transfer {

struct NixlNotice {
  Agent from;
  bool greeting = false;  // the first write to a process that was met: no part
  uint64_t checksum = 0;
  std::span<const std::byte> bytes = {};
};

std::vector<std::byte> encode(const NixlNotice& notice);
// Nothing, if it is none of ours. `bytes` are those of the argument.
std::optional<NixlNotice> decode_nixl_notice(std::span<const std::byte> bytes);

}  // namespace baton::transfer
