// gpu_ops [--plain | --unproven] [--seed N]: every op of the CUDA backend beside the CPU's, over types, shapes and edges, in memory that
// both see. Exit 1 on any difference, 77 without a device.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "backend/pair.h"
#include "ops/cuda/open.h"

namespace baton {
namespace {

int run(bool plain, bool unproven, unsigned seed) {
  auto opened = cuda::open_device({.host_visible = true, .plain = plain, .unproven = unproven});
  if (!opened) {
    fmt::print(stderr, "gpu_ops: {}\n", opened.error().message);
    return 77;
  }
  fmt::print("{}, {} bodies, seed {}\n", opened->name, plain ? "plain" : unproven ? "tuned and unproven" : "tuned", seed);
  pair::Pair both(*opened->backend, seed, std::min(cpu::detect_isa(), cpu::Isa::kAvx2));
  for (const auto check : {pair::check_dense, pair::check_experts, pair::check_streams, pair::check_kda, pair::check_sparse,
                           pair::check_sampling, pair::check_drafter, pair::check_released, pair::check_matrices})
    check(both);
  // By op and what was compared: the worst.
  std::map<std::string, pair::Finding> worst;
  int failed = 0;
  for (const pair::Finding& f : both.findings()) {
    failed += f.ok() ? 0 : 1;
    auto [at, first] = worst.try_emplace(f.name, f);
    if (!first && !(f.error - f.bound <= at->second.error - at->second.bound)) at->second = f;
  }
  for (const auto& [name, f] : worst)
    fmt::print("{} {:<72} {:.3g} (allowed {:.3g})\n", f.ok() ? "ok    " : "FAILED", name, f.error, f.bound);
  fmt::print("{} comparisons, {} failed{}\n", both.findings().size(), failed, failed == 0 ? ": all checks passed" : "");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  bool plain = false, unproven = false;
  unsigned seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--plain") {
      plain = true;
    } else if (arg == "--unproven") {
      unproven = true;
    } else if (arg == "--seed" && i + 1 < argc) {
      seed = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    } else {
      std::fputs("usage: gpu_ops [--plain | --unproven] [--seed N]\n", stderr);
      return 2;
    }
  }
  return baton::run(plain, unproven, seed);
}
