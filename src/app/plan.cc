// baton plan: what a model, a kind of GPU and a load give, before anything is bought or started.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/machine_flags.h"
#include "app/validators.h"
#include "base/file.h"
#include "model/json_text.h"
#include "plan/report.h"

namespace baton::app {
namespace {

struct Arguments {
  MachineFlags machine;
  double context = 0, output = 1024, shared = 0, concurrency = 0;
  double tpot_ms = 25, ttft_s = 6;
  std::string plot;
  bool json = false;
};

Status make(Arguments a) {
  a.machine.settle();
  BATON_ASSIGN(const model::Config config, a.machine.config());
  const auto positions = static_cast<double>(config.max_position_embeddings);
  if (a.context == 0) a.context = std::clamp(positions - a.output, 1.0, 65'536.0);
  if (a.context + a.output > positions)
    return Error{Error::Kind::kInvalid, fmt::format("--context {:.0f} and --output {:.0f}: the model takes at most {} positions", a.context,
                                                    a.output, config.max_position_embeddings)};
  BATON_ASSIGN(const plan::Efficiency efficiency, a.machine.efficiency());
  const plan::Load load{.prompt_tokens = a.context,
                        .output_tokens = a.output,
                        .shared = a.shared / 100,
                        .concurrency = a.concurrency,
                        .tpot_seconds = a.tpot_ms / 1e3,
                        .ttft_seconds = a.ttft_s};
  std::vector<plan::Variant> variants;
  for (const plan::Layout layout : {plan::Layout::kByRequest, plan::Layout::kTensor}) {
    if (a.machine.layout != "both" && a.machine.layout != plan::layout_name(layout)) continue;
    BATON_ASSIGN(const plan::Machine machine, a.machine.machine(config, layout));
    variants.push_back(
        {machine, plan::make_plan(config, machine, load, efficiency), plan::helpful_changes(config, machine, load, efficiency)});
  }
  if (!a.plot.empty()) {
    BATON_ASSIGN(PendingFile file, PendingFile::create(a.plot));
    BATON_TRY(file.write(plan::plot_of(variants)));
    BATON_TRY(file.commit());
  }
  if (a.json)
    fmt::print("{}", model::pretty_json(plan::json_of(variants, load, efficiency)));
  else
    fmt::print("{}", plan::text_of(variants, load, efficiency));
  return {};
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c =
      app.add_subcommand("plan", "What a kind of GPU gives for a load: memory, times, throughput, prefill and decode instances, limits");
  c->add_option("MODEL", a->machine.model, "Checkpoint folder, or a config.json; weights are not read")->required();
  a->machine.add_to(*c);
  c->add_option("--context", a->context, "Tokens of a prompt; by default 65536, or what the model takes")
      ->check(between(1, 1e8, "a number of tokens from 1"));
  c->add_option("--output", a->output, "Tokens of an answer")->check(between(1, 1e8, "a number of tokens from 1"))->capture_default_str();
  c->add_option("--shared", a->shared, "Percent of a prompt that the cache holds already")
      ->check(between(0, 100, "a percentage"))
      ->capture_default_str();
  c->add_option("--concurrency", a->concurrency, "Requests that run at a decode instance; 0: as many as the limits let")
      ->check(between(0, 1e6, "a number of requests"))
      ->capture_default_str();
  c->add_option("--tpot-ms", a->tpot_ms, "Longest time per output token")->check(between(1e-3, 1e6, "a time in ms"))->capture_default_str();
  c->add_option("--ttft-s", a->ttft_s, "Longest mean time to the first token")
      ->check(between(1e-3, 1e6, "a time in s"))
      ->capture_default_str();
  c->add_option("--plot", a->plot, "Write throughput and time per token over requests to this SVG file");
  c->add_flag("--json", a->json, "Print JSON");
  c->callback([a, &exit_code] { exit_code = finish(make(*a)); });
}

}  // namespace baton::app
