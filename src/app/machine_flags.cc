#include "app/machine_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "app/validators.h"
#include "base/file.h"
#include "plan/report.h"

namespace baton::app {
namespace {

constexpr int64_t kMostConfigBytes = 1 << 20;
constexpr int64_t kMostMeasurementBytes = 64 << 20;

// Tokens a cycle that were published for seven drafts with the released model; other numbers of drafts have to be told.
Result<double> accepted_of(const MachineFlags& a) {
  const double rows = a.drafter == "none" ? 1 : a.drafts + 1;
  if (a.accepted > rows)
    return Error{Error::Kind::kInvalid,
                 fmt::format("--accepted {}: a cycle yields at most {} tokens, one more than --drafts", a.accepted, rows)};
  if (a.accepted > 0 || rows == 1) return a.accepted > 0 ? a.accepted : 1.0;
  if (a.drafts == 7) return a.drafter == "mtp" ? 7.37 : 7.03;
  return Error{Error::Kind::kInvalid,
               fmt::format("--drafts {}: say with --accepted how many tokens a cycle yields; it is only known for 7", a.drafts)};
}

}  // namespace

void MachineFlags::add_to(CLI::App& c) {
  std::vector<std::string> names;
  for (const plan::Gpu& g : plan::known_gpus()) names.emplace_back(g.name);
  c.add_option("--gpu", gpu, "Kind of GPU")->check(CLI::IsMember(names))->capture_default_str();
  c.add_option("--gpus", gpus, "GPUs of an instance")->check(CLI::IsMember({1, 2, 4, 8, 16}))->capture_default_str();
  c.add_option("--layout", layout, "dp-ep: a request on one GPU, experts whole; tp: layers split; both")
      ->check(CLI::IsMember({"dp-ep", "tp", "both"}))
      ->capture_default_str();
  c.add_option("--kv-cache-dtype", latent, "Latent rows")->check(CLI::IsMember({"fp8", "bf16"}))->capture_default_str();
  c.add_option("--state-dtype", state, "KDA states")->check(CLI::IsMember({"bf16", "f32"}))->capture_default_str();
  c.add_option("--drafter", drafter, "Who drafts")->check(CLI::IsMember({"dflash", "mtp", "none"}))->capture_default_str();
  c.add_option("--drafts", drafts, "Drafted tokens of a cycle")->check(CLI::Range(1, 15))->capture_default_str();
  c.add_option("--accepted", accepted,
               "Tokens that a cycle yields in the mean; by default what was published for 7 drafts: 7.03 dflash, 7.37 mtp")
      ->check(between(1, 16, "a number of tokens from 1"));
  c.add_option("--chunk", chunk, "Tokens of a prefill chunk")->check(between(64, 1e6, "a number of tokens from 64"))->capture_default_str();
  c.add_option("--reserve-gb", reserve_gb, "Memory of a GPU for workspace, graphs and the driver")
      ->check(between(0, 1000, "a size in GB"))
      ->capture_default_str();
  c.add_option("--preset", preset, "baseline: BF16 rows, F32 states, a state for each row, MTP, layers split, BF16 transport")
      ->check(CLI::IsMember({"baseline"}));
  c.add_option(
       "--measured", measured,
       "Figures of bench cycle and bench prefill (--json, with --gpu) or of the harnesses of bench/gpu; several separated by commas. "
       "Their shares of the floor replace the expected ones")
      ->delimiter(',');
}

void MachineFlags::settle() {
  if (!baseline()) return;
  latent = "bf16";
  state = "f32";
  drafter = "mtp";
  layout = "tp";
}

// A folder with a config.json, or that file itself: weights are not needed.
Result<model::Config> MachineFlags::config() const {
  std::error_code error;
  if (std::filesystem::is_directory(model, error)) return model::load_config(model);
  BATON_ASSIGN(const std::string text, read_file(model, kMostConfigBytes));
  return model::parse_config(text, model);
}

Result<plan::Machine> MachineFlags::machine(const model::Config& config, plan::Layout how) const {
  BATON_ASSIGN(const double yield, accepted_of(*this));
  if (drafter == "mtp" && config.mtp_layers == 0)
    return Error{Error::Kind::kInvalid, fmt::format("--drafter mtp: {} has no MTP layer (num_nextn_predict_layers)", model)};
  if (config.experts % gpus != 0)
    return Error{
        Error::Kind::kInvalid,
        fmt::format("--gpus {}: {} experts cannot be divided evenly among them; give a number that divides them", gpus, config.experts)};
  plan::Machine m{.gpu = *plan::find_gpu(gpu),
                  .gpus = gpus,
                  .layout = how,
                  .cache = {.latent = latent == "fp8" ? DType::kF8E4M3 : DType::kBF16,
                            .state = state == "bf16" ? DType::kBF16 : DType::kF32,
                            .replay = true,
                            .rows = drafter == "none" ? 1 : drafts + 1,
                            .drafter = drafter == "none"  ? plan::Drafter::kNone
                                       : drafter == "mtp" ? plan::Drafter::kMtp
                                                          : plan::Drafter::kDFlash2},
                  .accepted = yield,
                  .chunk = chunk,
                  .split_experts = how == plan::Layout::kTensor,
                  .reserve_bytes = static_cast<int64_t>(reserve_gb * 1e9)};
  if (baseline()) {
    m.cache.replay = false;
    m.fp8_transport = false;
  }
  return m;
}

Result<plan::Efficiency> MachineFlags::efficiency() const {
  plan::Efficiency e;
  for (const std::string& file : measured) {
    BATON_ASSIGN(const std::string text, read_file(file, kMostMeasurementBytes));
    BATON_ASSIGN(const plan::Shares shares, plan::parse_measurements(text, file));
    for (const auto& [op, share] : shares) e.measured[op] = std::max(e.measured[op], share);
  }
  return e;
}

}  // namespace baton::app
