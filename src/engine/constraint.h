// What holds a choice to a form, token by token: a grammar, or anything else that says which tokens may come next.
//
// The engine knows nothing of the form. Per choice it asks for the mask of the next token once it has told the one before, and an error
// ends the choice (sched::FinishReason::kConstraint): nothing is ever drawn unmasked instead. A constraint stays with its choice through
// retraction, recomputation and forks of the prompt; no token is told twice. Only drafts are taken back: the constraint is led along them
// for their masks, and back to where they went wrong.
//
// Threads: one at a time, not always the same: the one that submits, the executor's, the engine's for its end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"

namespace baton::engine {

class Constraint {
 public:
  enum class Next : uint8_t {
    kAny,   // every token may come; the mask says nothing
    kSome,  // those of the mask
    kOver   // the form is complete: the choice ends as if a stop token had been drawn
  };

  virtual ~Constraint() = default;

  // Words of a mask: bit t % 32 of word t / 32 is for token t. All tokens of the vocabulary have one; further ones are ignored.
  virtual size_t mask_words() const = 0;
  // What may come next. For kSome all of `mask` has been written: a set bit is a token that may come; if none is set, the choice ends
  // with kNothingAllowed.
  virtual Result<Next> next(std::span<uint32_t> mask) = 0;
  // `token` came, one that the last next() allowed.
  virtual Status accept(int32_t token) = 0;
  // The last `tokens` of these did not come, after all.
  virtual Status rollback(size_t tokens) = 0;
  // Another one in the same place, for another choice.
  virtual Result<std::unique_ptr<Constraint>> fork() const = 0;
};

}  // namespace baton::engine
