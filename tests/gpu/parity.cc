// gpu_parity CHECKPOINT [options]: the whole model on the CUDA device beside the CPU, teacher-forced: the same random prompt, then the same
// token each step, whatever either would have drawn. Per form of numbers: relative error of the logits, divergence of the distributions,
// how often the most likely token is the same; on the device alone, whether the bits depend on how the rows were cut into launches; and how
// fast both are. Exit 1 beyond the bounds, 77 without a device.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "model/sequence_runner.h"
#include "ops/cpu/backend.h"
#include "ops/cuda/open.h"

namespace baton {
namespace {

struct Options {
  std::string checkpoint;
  int64_t prompt = 300;
  int64_t steps = 24;
  unsigned seed = 1;
  bool plain = false;
  bool unproven = false;
  bool cpu = true;  // false: the device alone, for sizes that take the CPU too long
  std::string only;
};

struct Form {
  const char* name;
  DType activation, state, latent, index;
  ops::ActivationQuant quant;
  bool chunked;
  // Relative error of the logits, and share of positions whose most likely token differs, that float sums in another order may make. Where
  // numbers are narrow the bound is what the same numbers do to the CPU: its distance from its own float results, half as much again.
  double bound;
  double most_flips;
};

using Clock = std::chrono::steady_clock;
double seconds(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One model with caches on one backend.
class Side {
 public:
  static Result<std::unique_ptr<Side>> open(const model::Checkpoint& checkpoint, ops::Backend& backend, const Form& form, int64_t tokens) {
    std::unique_ptr<Side> side(new Side(backend));
    model::ModelOptions o;
    o.numerics.activation = form.activation;
    o.numerics.quant = form.quant;
    o.numerics.chunked_kda = form.chunked;
    o.cache = {.activation = form.activation, .state = form.state, .latent = form.latent, .index = form.index};
    o.max_rows = tokens;
    o.max_logits_rows = kLogitRows;
    o.max_sequences = 4;
    o.max_pages = (tokens + ops::kPageTokens - 1) / ops::kPageTokens;
    o.loading.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    BATON_ASSIGN(side->model_, model::Glm5Next::load(checkpoint, backend, o));
    BATON_ASSIGN(auto runner, model::SequenceRunner::create(*side->model_, backend, 4, tokens, tokens));
    side->runner_ = std::make_unique<model::SequenceRunner>(std::move(runner));
    return side;
  }

  void reset(int sequence) { runner_->reset(sequence); }
  // Logits of all rows, appended.
  void forward(int sequence, std::span<const int32_t> ids, std::vector<float>& logits, bool verify = false) {
    const model::SequenceRunner::Rows rows{sequence, ids, verify};
    read(runner_->forward({&rows, 1}), logits);
  }
  void forward(std::span<const model::SequenceRunner::Rows> rows, std::vector<float>& logits) { read(runner_->forward(rows), logits); }
  void accept(int sequence, int32_t count) { runner_->accept(sequence, count); }
  // Seconds of a launch without its head.
  double time(int sequence, std::span<const int32_t> ids) {
    const model::SequenceRunner::Rows rows{sequence, ids, false};
    backend_.synchronize();
    const auto start = Clock::now();
    runner_->forward({&rows, 1});
    backend_.synchronize();
    return seconds(start);
  }

 private:
  static constexpr int64_t kLogitRows = 64;
  explicit Side(ops::Backend& backend) : backend_(backend) {}

  void read(MatrixView hidden, std::vector<float>& logits) {
    const int64_t v = model_->config().vocab_size;
    for (int64_t first = 0; first < hidden.rows; first += kLogitRows) {
      const int64_t n = std::min(kLogitRows, hidden.rows - first);
      const MatrixView rows = runner_->head(hidden.row_range(first, n));
      const size_t at = logits.size();
      logits.resize(at + static_cast<size_t>(n * v));
      backend_.copy_to_host(logits.data() + at, rows.data, n * v * int64_t{sizeof(float)});
    }
  }

  ops::Backend& backend_;
  std::unique_ptr<model::Glm5Next> model_;
  std::unique_ptr<model::SequenceRunner> runner_;
};

struct Difference {
  double error = 0;       // ||a - b|| / ||a||
  double divergence = 0;  // mean KL(a || b), nats
  double worst = 0;       // largest
  double flips = 0;       // share of rows whose most likely token differs
};

Difference compare(const std::vector<float>& a, const std::vector<float>& b, int64_t v) {
  Difference d;
  double difference = 0, size = 0;
  const auto rows = static_cast<int64_t>(a.size()) / v;
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = a.data() + r * v;
    const float* y = b.data() + r * v;
    const double top_x = static_cast<double>(*std::max_element(x, x + v));
    const double top_y = static_cast<double>(*std::max_element(y, y + v));
    double sum_x = 0, sum_y = 0;
    for (int64_t i = 0; i < v; ++i) {
      const double dx = static_cast<double>(x[i]), dy = static_cast<double>(y[i]);
      difference += (dx - dy) * (dx - dy);
      size += dx * dx;
      sum_x += std::exp(dx - top_x);
      sum_y += std::exp(dy - top_y);
    }
    const double log_x = top_x + std::log(sum_x), log_y = top_y + std::log(sum_y);
    double kl = 0;
    for (int64_t i = 0; i < v; ++i)
      kl += std::exp(static_cast<double>(x[i]) - log_x) * ((static_cast<double>(x[i]) - log_x) - (static_cast<double>(y[i]) - log_y));
    d.divergence += kl / static_cast<double>(rows);
    if (!(kl <= d.worst)) d.worst = kl;
    d.flips += std::max_element(x, x + v) - x == std::max_element(y, y + v) - y ? 0.0 : 1.0 / static_cast<double>(rows);
  }
  d.error = std::sqrt(difference / size);
  return d;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Parity {
 public:
  Parity(const model::Checkpoint& checkpoint, const Options& o) : checkpoint_(checkpoint), o_(o), v_(checkpoint.config().vocab_size) {
    std::mt19937 random(o.seed);
    for (int64_t i = 0; i < o.prompt + o.steps; ++i) ids_.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(v_)));
  }

  Result<bool> run(const Form& form) {
    BATON_ASSIGN(cuda::OpenedDevice opened, cuda::open_device({.plain = o_.plain, .unproven = o_.unproven}));
    const int64_t tokens = o_.prompt + o_.prompt / 3 + o_.steps + 64;  // of a sequence, and of two in one launch
    auto start = Clock::now();
    BATON_ASSIGN(const auto device, Side::open(checkpoint_, *opened.backend, form, tokens));
    fmt::print("{:<22} loaded in {:.2f} s\n", form.name, seconds(start));
    std::vector<float> on_device;
    teacher_forced(*device, on_device);
    bool ok = true;
    if (o_.cpu) {
      cpu::CpuBackend cpu({.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())), .isa = cpu::detect_isa()});
      BATON_ASSIGN(const auto host, Side::open(checkpoint_, cpu, form, tokens));
      std::vector<float> on_host;
      teacher_forced(*host, on_host);
      const Difference d = compare(on_host, on_device, v_);
      Difference limit{form.bound, 0, 0, form.most_flips};
      if (form.activation != DType::kF32) {
        BATON_TRY(run_in_float(cpu, tokens));
        const Difference rounding = compare(in_float_, on_host, v_);
        limit = {1.5 * rounding.error + form.bound, 0, 0, 1.5 * rounding.flips + form.most_flips};
        fmt::print("{:<22} the CPU beside itself in float: error {:.2e}, divergence {:.2e}, other first token {:.1f} %\n", form.name,
                   rounding.error, rounding.divergence, 100 * rounding.flips);
      }
      limit_ = limit.error;
      const bool passed = d.error <= limit.error && d.flips <= limit.flips && std::isfinite(d.divergence);
      fmt::print(
          "{:<22} {} positions beside the CPU: error {:.2e} (allowed {:.1e}), divergence mean {:.2e} worst {:.2e}, other first token "
          "{:.1f} % (allowed {:.1f} %)  {}\n",
          form.name, on_host.size() / static_cast<size_t>(v_), d.error, limit.error, d.divergence, d.worst, 100 * d.flips,
          100 * limit.flips, passed ? "ok" : "FAILED");
      ok = ok && passed;
    }
    ok = cuts(*device, form, on_device) && ok;
    speed(*device, form);
    return ok;
  }

 private:
  Status run_in_float(ops::Backend& cpu, int64_t tokens) {
    if (!in_float_.empty()) return {};
    constexpr DType kF32 = DType::kF32;
    const Form form{"", kF32, kF32, kF32, kF32, ops::ActivationQuant::kNone, false, 0, 0};
    BATON_ASSIGN(const auto side, Side::open(checkpoint_, cpu, form, tokens));
    teacher_forced(*side, in_float_);
    return {};
  }

  // The prompt in one launch, then token by token.
  void teacher_forced(Side& side, std::vector<float>& logits) {
    side.reset(0);
    side.forward(0, prompt(), logits);
    for (int64_t s = 0; s < o_.steps; ++s) side.forward(0, {&ids_[static_cast<size_t>(o_.prompt + s)], 1}, logits);
  }

  // The same rows cut otherwise: the bits may not differ with float state, but for KDA where long and short launches run different kernels.
  bool cuts(Side& side, const Form& form, const std::vector<float>& whole) {
    bool ok = true;
    const auto judge = [&](const char* what, const std::vector<float>& got, std::span<const float> wanted) {
      const std::vector<float> expected(wanted.begin(), wanted.end());
      const bool bits = same_bits(got, expected);
      const Difference d = compare(expected, got, v_);
      const bool passed = bits || d.error <= limit_;
      fmt::print("{:<22} {}: {}, error {:.1e}  {}\n", form.name, what, bits ? "equal bits" : "other bits", d.error,
                 passed ? "ok" : "FAILED");
      ok = ok && passed;
    };
    const std::span<const float> all(whole);
    const auto n = static_cast<size_t>(o_.prompt * v_);
    std::vector<float> got;
    teacher_forced(side, got);
    judge("again", got, all);
    got.clear();
    side.reset(1);
    for (size_t first = 0, step = 1; first < prompt().size(); first += step, step = step * 3 % 101)
      side.forward(1, prompt().subspan(first, std::min(step, prompt().size() - first)), got);
    judge("in chunks", got, all.first(n));
    // Two sequences together, the second shorter and in front.
    got.clear();
    side.reset(0);
    side.reset(2);
    const auto part = prompt().first(prompt().size() / 3);
    const model::SequenceRunner::Rows both[] = {{2, part, false}, {0, prompt(), false}};
    side.forward(both, got);
    judge("beside another", {got.begin() + static_cast<std::ptrdiff_t>(part.size() * static_cast<size_t>(v_)), got.end()}, all.first(n));
    // Blocks of verified rows, some of them accepted.
    got.clear();
    side.reset(3);
    std::vector<float> first_rows, kept;
    const int64_t half = o_.prompt / 2;
    side.forward(3, prompt().first(static_cast<size_t>(half)), first_rows);
    std::mt19937 random(o_.seed);
    for (int64_t at = half; at + 8 <= o_.prompt;) {
      got.clear();
      side.forward(3, prompt().subspan(static_cast<size_t>(at), 8), got, true);
      const auto accepted = static_cast<int32_t>(1 + random() % 8);
      side.accept(3, accepted);
      kept.insert(kept.end(), got.begin(), got.begin() + static_cast<std::ptrdiff_t>(accepted * v_));
      at += accepted;
    }
    judge("verified in blocks", kept, all.subspan(static_cast<size_t>(half * v_), kept.size()));
    return ok;
  }

  void speed(Side& side, const Form& form) {
    side.reset(0);
    side.time(0, prompt());
    side.reset(0);
    const double prefill = side.time(0, prompt());
    std::vector<double> steps;
    for (int64_t s = 0; s < o_.steps; ++s) steps.push_back(side.time(0, {&ids_[static_cast<size_t>(o_.prompt + s)], 1}));
    std::nth_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2), steps.end());
    fmt::print("{:<22} prefill {} rows {:.2f} ms, one row {:.3f} ms (median, without head)\n", form.name, o_.prompt, prefill * 1e3,
               steps[steps.size() / 2] * 1e3);
  }

  std::span<const int32_t> prompt() const { return std::span(ids_).first(static_cast<size_t>(o_.prompt)); }

  const model::Checkpoint& checkpoint_;
  const Options& o_;
  int64_t v_;
  std::vector<int32_t> ids_;
  std::vector<float> in_float_;  // the CPU's logits
  double limit_ = 0.3;           // of the form, for rows cut otherwise
};

int run(const Options& o) {
  if (auto opened = cuda::open_device({}); !opened) {
    fmt::print(stderr, "gpu_parity: {}\n", opened.error().message);
    return 77;
  }
  const auto checkpoint = model::Checkpoint::open(o.checkpoint);
  if (!checkpoint) {
    fmt::print(stderr, "gpu_parity: {}\n", checkpoint.error().message);
    return 1;
  }
  constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kFP8 = DType::kF8E4M3;
  constexpr auto kNone = ops::ActivationQuant::kNone, kBlock = ops::ActivationQuant::kE4m3Block;
  const Form forms[] = {{"float32", kF32, kF32, kF32, kF32, kNone, false, 1e-3, 0.01},
                        {"bfloat16", kBF16, kF32, kBF16, kBF16, kNone, false, 1e-3, 0.01},
                        {"bfloat16, fp8 caches", kBF16, kF32, kFP8, kFP8, kNone, false, 1e-3, 0.01},
                        {"bfloat16, chunked", kBF16, kBF16, kFP8, kFP8, kNone, true, 1e-3, 0.01},
                        {"bfloat16, fp8 inputs", kBF16, kF32, kBF16, kBF16, kBlock, false, 1e-3, 0.01}};
  Parity parity(*checkpoint, o);
  int failed = 0, runs = 0;
  for (const Form& form : forms) {
    if (!o.only.empty() && o.only != form.name) continue;
    ++runs;
    const auto ok = parity.run(form);
    if (!ok) fmt::print("{:<22} FAILED: {}\n", form.name, ok.error().message);
    failed += ok.ok() && *ok ? 0 : 1;
    std::fflush(stdout);
  }
  fmt::print("{} forms, {} failed{}\n", runs, failed, failed == 0 && runs > 0 ? ": all checks passed" : "");
  return failed == 0 && runs > 0 ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Options o;
  bool usage = argc < 2;
  for (int i = 1; i < argc && !usage; ++i) {
    const std::string arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--plain")
      o.plain = true;
    else if (arg == "--unproven")
      o.unproven = true;
    else if (arg == "--no-cpu")
      o.cpu = false;
    else if (arg == "--prompt" && more)
      o.prompt = std::strtoll(argv[++i], nullptr, 10);
    else if (arg == "--steps" && more)
      o.steps = std::strtoll(argv[++i], nullptr, 10);
    else if (arg == "--seed" && more)
      o.seed = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    else if (arg == "--form" && more)
      o.only = argv[++i];
    else if (o.checkpoint.empty() && !arg.starts_with("-"))
      o.checkpoint = arg;
    else
      usage = true;
  }
  if (usage || o.checkpoint.empty() || o.prompt < 32 || o.steps < 1) {
    std::fputs("usage: gpu_parity CHECKPOINT [--prompt N >= 32] [--steps N] [--seed N] [--form NAME] [--plain | --unproven] [--no-cpu]\n",
               stderr);
    return 2;
  }
  return baton::run(o);
}
