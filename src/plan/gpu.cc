#include "plan/gpu.h"

#include <array>

namespace baton::plan {
namespace {

constexpr std::array<Gpu, 2> kGpus = {{
    {.name = "h200",
     .memory_bytes = 150'754'000'000,
     .read = 4.55e12,
     .bf16 = 670e12,
     .fp8 = 1075e12,
     .peer = 369e9,
     .source = "measured: long reads, minutes of products under the power limit, stores to a peer"},
    // The same chip and power as the H200; other memory.
    {.name = "h100",
     .memory_bytes = 85'520'000'000,
     .read = 3.18e12,
     .bf16 = 670e12,
     .fp8 = 1075e12,
     .peer = 369e9,
     .source = "not measured: the published bandwidth of 3.35 TB/s at the share that an H200 reaches of its own, products as on the H200"},
}};

}  // namespace

std::span<const Gpu> known_gpus() { return kGpus; }

const Gpu* find_gpu(std::string_view name) {
  for (const Gpu& g : kGpus)
    if (g.name == name) return &g;
  return nullptr;
}

}  // namespace baton::plan
