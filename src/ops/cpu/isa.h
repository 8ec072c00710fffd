// Which instruction sets the CPU kernels use. The choice never depends on the sizes of a call, so that rows do not depend on their batch.
#pragma once

#include <optional>
#include <string_view>

namespace baton::cpu {

// Ordered: each level includes the ones before it.
enum class Isa {
  kPlain,   // scalar loops, the reference
  kAvx2,    // x86-64-v3
  kAvx512,  // x86-64-v4 with AVX-512 BF16, VBMI and GFNI
  kAmx      // and AMX BF16 tiles
};

std::string_view isa_name(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);

// The widest level that this machine and kernel grant. Asks the system for AMX tile state once.
Isa detect_isa();

}  // namespace baton::cpu
