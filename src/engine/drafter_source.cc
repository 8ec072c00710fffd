#include "engine/drafter_source.h"

#include <fmt/format.h>

#include "model/dflash2.h"
#include "model/mtp_drafter.h"
#include "speculate/metrics.h"

namespace baton::engine {
namespace {

Error invalid(std::string message) { return Error{Error::Kind::kInvalid, std::move(message)}; }

// -1: neither says.
Result<int32_t> drafts_of(const Speculation& s) {
  if (s.steps >= 0 && s.draft_tokens >= 0 && s.draft_tokens != s.steps + 1)
    return invalid(
        fmt::format("--speculative-num-draft-tokens {} does not fit --speculative-num-steps {}: each step drafts one token, and one "
                    "more is verified; leave one of them out, or give {}",
                    s.draft_tokens, s.steps, s.steps + 1));
  const int32_t drafts = s.steps >= 0 ? s.steps : s.draft_tokens >= 0 ? s.draft_tokens - 1 : -1;
  if (drafts != -1 && (drafts < 1 || drafts > speculate::kMostDrafts))
    return invalid(fmt::format("{} drafts per cycle (--speculative-num-steps, or --speculative-num-draft-tokens less one); give 1 to {}",
                               drafts, speculate::kMostDrafts));
  return drafts;
}

Result<DrafterSource> choose_dflash2(const std::string& folder, int32_t drafts, const model::Config& config, DType activation) {
  if (folder.empty()) return invalid("--speculative-algorithm DFLASH needs --speculative-draft-model-path, the folder of a draft model");
  BATON_ASSIGN(model::DFlash2Checkpoint opened, model::DFlash2Checkpoint::open(folder));
  const auto checkpoint = std::make_shared<const model::DFlash2Checkpoint>(std::move(opened));
  BATON_TRY(model::check_dflash2_target(checkpoint->config(), config, folder));
  const auto most = static_cast<int32_t>(checkpoint->config().drafts());
  if (drafts > most)
    return invalid(
        fmt::format("{} drafts per cycle, and a block of {} has {} (block_size less one); give at most that", drafts, folder, most));
  if (most > speculate::kMostDrafts && drafts < 0)
    return invalid(
        fmt::format("a block of {} has {} drafts; give --speculative-num-steps, at most {}", folder, most, speculate::kMostDrafts));
  DrafterSource source;
  source.name = "DFLASH";
  source.needs = model::dflash2_needs(checkpoint->config(), activation);
  if (drafts > 0) source.needs.most_drafts = drafts;
  source.load = [checkpoint](model::Glm5Next& target, ops::Backend& backend,
                             int64_t vocabulary) -> Result<std::unique_ptr<model::Drafter>> {
    BATON_ASSIGN(auto drafter, model::DFlash2Drafter::load(*checkpoint, target, backend,
                                                           {.max_rows = target.options().max_rows,
                                                            .max_sequences = target.options().max_sequences,
                                                            .vocabulary = vocabulary,
                                                            .threads = target.options().loading.threads}));
    return std::unique_ptr<model::Drafter>(std::move(drafter));
  };
  return source;
}

}  // namespace

Result<DrafterSource> choose_drafter(const Speculation& s, const model::Config& config, DType activation, int64_t context_tokens) {
  BATON_ASSIGN(const int32_t drafts, drafts_of(s));
  if (s.algorithm != "DFLASH" && !s.draft_model.empty())
    return invalid(fmt::format("--speculative-draft-model-path is for --speculative-algorithm DFLASH, not {}", s.algorithm));
  if (s.sampled_proposals && s.algorithm != "DFLASH")
    return invalid(fmt::format("--speculative-sampled-proposals is for --speculative-algorithm DFLASH, not {}", s.algorithm));
  if (s.sampled_proposals && s.adaptive)
    return invalid(
        "--speculative-sampled-proposals and --speculative-adaptive exclude each other: what is drawn would depend on what cycles "
        "have taken; leave one of them out");
  DrafterSource source;
  if (s.algorithm == "none") {
    if (drafts >= 0 || s.adaptive)
      return invalid(fmt::format("{} needs a --speculative-algorithm: NEXTN or DFLASH",
                                 s.adaptive ? "--speculative-adaptive" : "--speculative-num-steps"));
    return source;
  }
  if (s.algorithm == "NEXTN" || s.algorithm == "EAGLE") {
    constexpr int32_t kUsual = 7;
    source.name = "NEXTN";
    source.mtp = true;
    BATON_ASSIGN(source.needs, model::MtpDrafter::needs_of(config, drafts < 0 ? kUsual : drafts, activation, context_tokens));
    source.load = [needs = source.needs](model::Glm5Next& target, ops::Backend& backend,
                                         int64_t vocabulary) -> Result<std::unique_ptr<model::Drafter>> {
      BATON_ASSIGN(auto drafter, model::MtpDrafter::create(target, backend, needs, vocabulary));
      return std::unique_ptr<model::Drafter>(std::move(drafter));
    };
    return source;
  }
  if (s.algorithm == "DFLASH") return choose_dflash2(s.draft_model, drafts, config, activation);
  return Error{Error::Kind::kUnsupported,
               fmt::format("--speculative-algorithm {} is not supported; give NEXTN, DFLASH or none", s.algorithm)};
}

}  // namespace baton::engine
