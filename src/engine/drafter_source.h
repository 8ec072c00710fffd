// Which drafter an engine has, before its target is loaded.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model/drafter.h"
#include "model/glm5_next.h"

namespace baton::engine {

struct DrafterSource {
  std::string name = "none";  // for people
  model::DrafterNeeds needs;  // most_drafts 0: nobody drafts
  bool mtp = false;           // it uses the rows of the target's MTP layer
  std::function<Result<std::unique_ptr<model::Drafter>>(model::Glm5Next& target, ops::Backend& backend, int64_t vocabulary)> load;
};

// As asked for on a command line.
struct Speculation {
  std::string algorithm = "none";  // none, NEXTN, EAGLE, DFLASH
  int32_t steps = -1;              // drafts of a sequence and cycle; -1: 7, or the draft model's block without its anchor
  int32_t draft_tokens = -1;       // the same and one more: the rows that are verified
  std::string draft_model;         // folder; of DFLASH alone
  bool adaptive = false;           // fewer drafts where that gives more tokens per time
  bool sampled_proposals = false;  // of DFLASH alone: drafts are judged by what they were drawn from; same distribution, another text
};

// Errors name the flag to change. `activation` and `context_tokens` as of the target.
Result<DrafterSource> choose_drafter(const Speculation& speculation, const model::Config& config, DType activation, int64_t context_tokens);

}  // namespace baton::engine
