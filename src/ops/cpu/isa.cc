#include "ops/cpu/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace baton::cpu {
namespace {

// Linux grants the 8 KB of tile registers to a process on request (arch_prctl, feature 18 = XTILEDATA).
bool request_amx() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa detect() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return Isa::kPlain;
  const bool avx512 = __builtin_cpu_supports("x86-64-v4") != 0 && __builtin_cpu_supports("avx512bf16") != 0 &&
                      __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("gfni") != 0;
  if (!avx512) return Isa::kAvx2;
  unsigned a = 7;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  constexpr unsigned kAmxBf16 = 1U << 22U;
  constexpr unsigned kAmxTile = 1U << 24U;
  if ((d & kAmxBf16) != 0 && (d & kAmxTile) != 0 && request_amx()) return Isa::kAmx;
  return Isa::kAvx512;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPlain: return "plain";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAmx: return "amx";
  }
  return "?";
}

std::optional<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512, Isa::kAmx})
    if (name == isa_name(isa)) return isa;
  return std::nullopt;
}

Isa detect_isa() {
  static const Isa isa = detect();
  return isa;
}

}  // namespace baton::cpu
