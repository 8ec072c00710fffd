// What a kind of GPU can do: the ceilings that every time of a plan is computed from.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace baton::plan {

struct Gpu {
  std::string_view name;
  int64_t memory_bytes = 0;
  double read = 0;  // bytes a second from its own memory
  double bf16 = 0;  // FLOP a second of dense products, sustained for minutes under the power limit
  double fp8 = 0;   // likewise, of FP8 with block scales
  double peer = 0;  // bytes a second and direction, to another GPU of the same host
  std::string_view source;
};

std::span<const Gpu> known_gpus();
// Null where the name is not known.
const Gpu* find_gpu(std::string_view name);

}  // namespace baton::plan
