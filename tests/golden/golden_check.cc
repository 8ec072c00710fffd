// golden_check DIR...: compares the CPU backend with golden folders; prints a table a mode and exits 1 on any failure.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "golden/check.h"

namespace {

constexpr const char* kUsage =
    "usage: golden_check [--device cpu|cuda|cuda-plain] [--isa plain|avx2|avx512|amx] [--threads N] [--chunk N] "
    " [--mode fp32|bf16|fp8_act] [--verbose] DIR...\n"
    "  Without --isa every instruction set of this machine is run; without --mode every mode that the folder has.\n"
    "  fp32: every instruction set must meet every tolerance and make every choice alike.\n"
    "  bf16: a position whose experts or pools a near-tie sent another way counts in the median alone, from that layer on.\n"
    "  fp8_act: rows that an e4m3 tie moved, by no more than a step and behind rows that are exact, are told from an error and printed; "
    "an\n"
    "  error counts, prompt by prompt, by the instruction set in which it is smallest. tests/golden/README.md says it in full.\n"
    "  --device cuda: the CUDA device instead of the CPU; cuda-plain: without its tuned kernels.\n"
    "  --verbose prints each instruction set on its own.\n";

struct Arguments {
  std::vector<baton::cpu::Isa> isas;
  std::vector<std::string> modes;
  std::vector<std::string> dirs;
  int threads = 2;
  int chunk = 0;
  bool verbose = false;
  std::string device = "cpu";
};

bool parse_number(const std::string& text, int low, int high, int& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= low && out <= high;
}

bool parse(int argc, char** argv, Arguments& a) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool option = arg.starts_with("-") || arg.empty();
    if (arg == "--verbose") {
      a.verbose = true;
      continue;
    }
    if (option && i + 1 >= argc) return false;
    if (arg == "--device") {
      a.device = argv[++i];
      if (a.device != "cpu" && a.device != "cuda" && a.device != "cuda-plain") return false;
    } else if (arg == "--isa") {
      const auto isa = baton::cpu::parse_isa(argv[++i]);
      if (!isa || *isa > baton::cpu::detect_isa()) return false;
      a.isas.push_back(*isa);
    } else if (arg == "--threads") {
      if (!parse_number(argv[++i], 1, 1024, a.threads)) return false;
    } else if (arg == "--chunk") {
      if (!parse_number(argv[++i], 1, 1 << 20, a.chunk)) return false;
    } else if (arg == "--mode") {
      a.modes.emplace_back(argv[++i]);
      if (a.modes.back() != "fp32" && a.modes.back() != "bf16" && a.modes.back() != "fp8_act") return false;
    } else if (option) {
      return false;
    } else {
      a.dirs.push_back(arg);
    }
  }
  if (a.device != "cpu") a.isas = {baton::cpu::Isa::kPlain};  // one run
  if (a.isas.empty())
    for (const auto isa : {baton::cpu::Isa::kPlain, baton::cpu::Isa::kAvx2, baton::cpu::Isa::kAvx512, baton::cpu::Isa::kAmx})
      if (isa <= baton::cpu::detect_isa()) a.isas.push_back(isa);
  return !a.dirs.empty();
}

bool check(const std::string& dir, const Arguments& a) {
  using baton::golden::Mode;
  auto folder = baton::golden::Folder::open(dir);
  if (!folder) {
    fmt::print(stderr, "golden_check: {}\n", folder.error().message);
    return false;
  }
  const std::pair<const char*, Mode> all[] = {{"fp32", Mode::kFp32}, {"bf16", Mode::kBf16}, {"fp8_act", Mode::kFp8Act}};
  bool ok = true;
  int runs = 0;
  for (const auto& [name, mode] : all) {
    if (folder->tolerances(name).empty()) continue;
    if (!a.modes.empty() && std::find(a.modes.begin(), a.modes.end(), name) == a.modes.end()) continue;
    std::vector<baton::golden::Report> reports;
    std::string isas;
    for (const auto isa : a.isas) {
      auto report = baton::golden::check_folder(*folder, {.mode = mode,
                                                          .threads = a.threads,
                                                          .isa = isa,
                                                          .cuda = a.device != "cpu",
                                                          .plain_cuda = a.device == "cuda-plain",
                                                          .chunk = a.chunk});
      if (!report) {
        fmt::print(stderr, "golden_check: {}: {}\n", dir, report.error().message);
        return false;
      }
      reports.push_back(std::move(*report));
      isas += fmt::format(" {}", a.device == "cpu" ? baton::cpu::isa_name(isa) : a.device);
    }
    const auto verdict = baton::golden::Report::merge(reports, mode == Mode::kFp8Act);
    verdict.print(fmt::format("{} {} on{}: {}", dir, name, isas, verdict.passed() ? "ok" : "FAILED"));
    if (mode != Mode::kFp32 && a.verbose)
      for (size_t i = 0; i < reports.size(); ++i)
        reports[i].print(
            fmt::format("  of which {}{}", baton::cpu::isa_name(a.isas[i]), reports[i].passed() ? "" : ": outside on its own"));
    ok = ok && verdict.passed();
    ++runs;
  }
  if (runs == 0) fmt::print(stderr, "golden_check: {}: no mode to check\n", dir);
  return ok && runs > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  if (!parse(argc, argv, a)) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  int failed = 0;
  for (const std::string& dir : a.dirs) {
    try {
      failed += check(dir, a) ? 0 : 1;
    } catch (const std::exception& e) {  // a folder that is not what it says: boost::json and Folder throw
      fmt::print(stderr, "golden_check: {}: {}\n", dir, e.what());
      ++failed;
    }
  }
  fmt::print("{} of {} folders passed\n", a.dirs.size() - static_cast<size_t>(failed), a.dirs.size());
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return 1;
  return failed == 0 ? 0 : 1;
}
