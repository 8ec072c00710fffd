// baton plan: what a model, a kind of GPU and a load give, before anything is bought or started.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/validators.h"
#include "base/file.h"
#include "model/json_text.h"
#include "plan/report.h"

namespace baton::app {
namespace {

constexpr int64_t kMostConfigBytes = 1 << 20;
constexpr int64_t kMostMeasurementBytes = 64 << 20;

struct Arguments {
  std::string model;
  std::string gpu = "h200";
  int32_t gpus = 4;
  std::string layout = "both";
  std::string preset;
  std::string latent = "fp8", state = "bf16", drafter = "dflash";
  int32_t drafts = 7;
  double accepted = 0;
  double context = 0, output = 1024, shared = 0, concurrency = 0;
  double tpot_ms = 25, ttft_s = 6, chunk = 32'768, reserve_gb = 8;
  std::string measured, plot;
  bool json = false;
};

// A folder with a config.json, or that file itself: weights are not needed.
Result<model::Config> config_of(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return model::load_config(path);
  BATON_ASSIGN(const std::string text, read_file(path, kMostConfigBytes));
  return model::parse_config(text, path);
}

// Tokens a cycle that were published for seven drafts with the released model; other numbers of drafts have to be told.
Result<double> accepted_of(const Arguments& a) {
  const double rows = a.drafter == "none" ? 1 : a.drafts + 1;
  if (a.accepted > rows)
    return Error{Error::Kind::kInvalid,
                 fmt::format("--accepted {}: a cycle yields at most {} tokens, one more than --drafts", a.accepted, rows)};
  if (a.accepted > 0 || rows == 1) return a.accepted > 0 ? a.accepted : 1.0;
  if (a.drafts == 7) return a.drafter == "mtp" ? 7.37 : 7.03;
  return Error{Error::Kind::kInvalid,
               fmt::format("--drafts {}: say with --accepted how many tokens a cycle yields; it is only known for 7", a.drafts)};
}

plan::Machine machine_of(const Arguments& a, const plan::Gpu& gpu, double accepted, plan::Layout layout) {
  plan::Machine m{.gpu = gpu,
                  .gpus = a.gpus,
                  .layout = layout,
                  .cache = {.latent = a.latent == "fp8" ? DType::kF8E4M3 : DType::kBF16,
                            .state = a.state == "bf16" ? DType::kBF16 : DType::kF32,
                            .replay = true,
                            .rows = a.drafter == "none" ? 1 : a.drafts + 1,
                            .drafter = a.drafter == "none"  ? plan::Drafter::kNone
                                       : a.drafter == "mtp" ? plan::Drafter::kMtp
                                                            : plan::Drafter::kDFlash2},
                  .accepted = accepted,
                  .chunk = a.chunk,
                  .split_experts = layout == plan::Layout::kTensor,
                  .reserve_bytes = static_cast<int64_t>(a.reserve_gb * 1e9)};
  if (a.preset == "baseline") {
    m.cache.replay = false;
    m.fp8_transport = false;
  }
  return m;
}

Status make(Arguments a) {
  if (a.preset == "baseline") {
    a.latent = "bf16";
    a.state = "f32";
    a.drafter = "mtp";
    a.layout = "tp";
  }
  BATON_ASSIGN(const model::Config config, config_of(a.model));
  BATON_ASSIGN(const double accepted, accepted_of(a));
  if (a.drafter == "mtp" && config.mtp_layers == 0)
    return Error{Error::Kind::kInvalid, fmt::format("--drafter mtp: {} has no MTP layer (num_nextn_predict_layers)", a.model)};
  const auto positions = static_cast<double>(config.max_position_embeddings);
  if (a.context == 0) a.context = std::clamp(positions - a.output, 1.0, 65'536.0);
  if (a.context + a.output > positions)
    return Error{Error::Kind::kInvalid, fmt::format("--context {:.0f} and --output {:.0f}: the model takes at most {} positions", a.context,
                                                    a.output, config.max_position_embeddings)};
  if (config.experts % a.gpus != 0)
    return Error{Error::Kind::kInvalid, fmt::format("--gpus {}: {} experts cannot be divided evenly among them", a.gpus, config.experts)};
  plan::Efficiency efficiency;
  if (!a.measured.empty()) {
    BATON_ASSIGN(const std::string text, read_file(a.measured, kMostMeasurementBytes));
    BATON_ASSIGN(efficiency.measured, plan::parse_measurements(text, a.measured));
  }
  const plan::Load load{.prompt_tokens = a.context,
                        .output_tokens = a.output,
                        .shared = a.shared / 100,
                        .concurrency = a.concurrency,
                        .tpot_seconds = a.tpot_ms / 1e3,
                        .ttft_seconds = a.ttft_s};
  std::vector<plan::Variant> variants;
  for (const plan::Layout layout : {plan::Layout::kByRequest, plan::Layout::kTensor}) {
    if (a.layout != "both" && a.layout != plan::layout_name(layout)) continue;
    const plan::Machine machine = machine_of(a, *plan::find_gpu(a.gpu), accepted, layout);
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
  c->add_option("MODEL", a->model, "Checkpoint folder, or a config.json; weights are not read")->required();
  std::vector<std::string> gpus;
  for (const plan::Gpu& g : plan::known_gpus()) gpus.emplace_back(g.name);
  c->add_option("--gpu", a->gpu, "Kind of GPU")->check(CLI::IsMember(gpus))->capture_default_str();
  c->add_option("--gpus", a->gpus, "GPUs of an instance")->check(CLI::IsMember({1, 2, 4, 8, 16}))->capture_default_str();
  c->add_option("--layout", a->layout, "dp-ep: a request on one GPU, experts whole; tp: layers split; both")
      ->check(CLI::IsMember({"dp-ep", "tp", "both"}))
      ->capture_default_str();
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
  c->add_option("--kv-cache-dtype", a->latent, "Latent rows")->check(CLI::IsMember({"fp8", "bf16"}))->capture_default_str();
  c->add_option("--state-dtype", a->state, "KDA states")->check(CLI::IsMember({"bf16", "f32"}))->capture_default_str();
  c->add_option("--drafter", a->drafter, "Who drafts")->check(CLI::IsMember({"dflash", "mtp", "none"}))->capture_default_str();
  c->add_option("--drafts", a->drafts, "Drafted tokens of a cycle")->check(CLI::Range(1, 15))->capture_default_str();
  c->add_option("--accepted", a->accepted,
                "Tokens that a cycle yields in the mean; by default what was published for 7 drafts: 7.03 dflash, 7.37 mtp")
      ->check(between(1, 16, "a number of tokens from 1"));
  c->add_option("--chunk", a->chunk, "Tokens of a prefill chunk")
      ->check(between(64, 1e6, "a number of tokens from 64"))
      ->capture_default_str();
  c->add_option("--reserve-gb", a->reserve_gb, "Memory of a GPU for workspace, graphs and the driver")
      ->check(between(0, 1000, "a size in GB"))
      ->capture_default_str();
  c->add_option("--preset", a->preset, "baseline: BF16 rows, F32 states, a state for each row, MTP, layers split, BF16 transport")
      ->check(CLI::IsMember({"baseline"}));
  c->add_option("--measured", a->measured, "JSON lines of the harnesses of bench/gpu: their shares of the floor replace the expected ones");
  c->add_option("--plot", a->plot, "Write throughput and time per token over requests to this SVG file");
  c->add_flag("--json", a->json, "Print JSON");
  c->callback([a, &exit_code] { exit_code = finish(make(*a)); });
}

}  // namespace baton::app
