#include "engine/drafter_source.h"

#include <fmt/format.h>

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

}  // namespace

Result<DrafterSource> choose_drafter(const Speculation& s, const model::Config& config, DType activation, int64_t context_tokens) {
  BATON_ASSIGN(const int32_t drafts, drafts_of(s));
  if (s.algorithm != "DFLASH" && !s.draft_model.empty())
    return invalid(fmt::format("--speculative-draft-model-path is for --speculative-algorithm DFLASH, not {}", s.algorithm));
  DrafterSource source;
  if (s.algorithm == "none") {
    if (drafts >= 0) return invalid("--speculative-num-steps needs a --speculative-algorithm: NEXTN or DFLASH");
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
  return Error{Error::Kind::kUnsupported, fmt::format("--speculative-algorithm {} is not supported; give NEXTN or none", s.algorithm)};
}

}  // namespace baton::engine
