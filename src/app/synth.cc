// baton synth: a checkpoint of any size with random weights.
#include "model/synth.h"

#include <csignal>
#include <map>
#include <memory>
#include <thread>

#include "app/commands.h"
#include "app/progress.h"
#include "app/validators.h"
#include "base/file.h"

namespace baton::app {
namespace {

struct Arguments {
  std::string config;
  std::string out;
  std::string format = "bf16";
  uint64_t seed = 0;
  int64_t shards = 0;
  int threads = 0;
};

const std::map<std::string, model::WeightFormat> kFormats = {
    {"bf16", model::WeightFormat::kBF16}, {"fp8", model::WeightFormat::kFp8}, {"f32", model::WeightFormat::kF32}};

// Set by signals: an interrupted run removes what it wrote, like any other failure.
std::atomic<bool> g_stop{false};

Status synth(const Arguments& a) {
  BATON_ASSIGN(const std::string config, read_file(a.config, int64_t{8} << 20));
  // A signal that the caller ignores (nohup) stays ignored.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGUSR1, SIGUSR2})
    if (std::signal(signal, [](int) { g_stop.store(true); }) == SIG_IGN) std::signal(signal, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  model::SynthOptions options;
  options.format = kFormats.at(a.format);
  options.seed = a.seed;
  options.shards = a.shards;
  options.threads = a.threads > 0 ? a.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.stop = &g_stop;
  auto progress = std::make_unique<Progress>("write", 0);
  int64_t announced = 0;
  options.progress = [&](int64_t done, int64_t total) {
    if (total != std::exchange(announced, total)) progress->restart("write", total);
    progress->update(done);
  };
  const auto summary = model::write_synthetic_checkpoint(config, a.config, a.out, options);
  progress.reset();  // clears the line
  if (!summary.ok()) return summary.error();
  fmt::print("{}: {} parameters in {} tensors, {} bytes, {} file{}\n", a.out, summary->parameters, summary->tensors, summary->bytes,
             summary->shards, summary->shards == 1 ? "" : "s");
  return {};
}

}  // namespace

void add_synth(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("synth", "Write a checkpoint with random weights");
  c->add_option("--config", a->config, "config.json that describes the model; it is rewritten for the format")->required();
  c->add_option("--seed", a->seed, "The same seed gives the same weights on every machine")->required()->check(whole_number_64());
  c->add_option("--format", a->format, "bf16; fp8: 128 x 128 blocks as released; f32")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "fp8", "f32"}));
  c->add_option("--shards", a->shards, "Number of files (default: files of at most about 5 GB)")->check(CLI::Range(1, 4096));
  c->add_option("--threads", a->threads, "CPU threads (default: all cores)")->check(CLI::Range(1, 1024));
  c->add_option("OUT", a->out, "Folder to write; must not exist or be empty")->required();
  c->callback([a, &exit_code] { exit_code = finish(synth(*a)); });
}

}  // namespace baton::app
