#include "engine/grammar_constraint.h"

#include <fmt/format.h>

#include <utility>

namespace baton::engine {
namespace {

class GrammarConstraint final : public Constraint {
 public:
  explicit GrammarConstraint(text::GrammarMatcher matcher) : matcher_(std::move(matcher)) {}

  size_t mask_words() const override { return matcher_.row_words(); }

  Result<Next> next(std::span<uint32_t> mask) override {
    if (matcher_.terminated()) return Next::kOver;
    // The library's rows are signed, the sampler's are not; the bits are the same.
    BATON_ASSIGN(const bool restricts, matcher_.fill({reinterpret_cast<int32_t*>(mask.data()), mask.size()}));
    return restricts ? Next::kSome : Next::kAny;
  }

  Status accept(int32_t token) override {
    BATON_ASSIGN(const bool accepted, matcher_.accept(token));
    if (accepted) return {};
    return Error{Error::Kind::kUnsupported, fmt::format("the grammar allowed token {} and did not accept it; change the grammar", token)};
  }

  Status rollback(size_t tokens) override { return matcher_.rollback(tokens); }

  Result<std::unique_ptr<Constraint>> fork() const override {
    BATON_ASSIGN(text::GrammarMatcher other, matcher_.fork());
    return constrain(std::move(other));
  }

 private:
  text::GrammarMatcher matcher_;
};

}  // namespace

std::unique_ptr<Constraint> constrain(text::GrammarMatcher matcher) { return std::make_unique<GrammarConstraint>(std::move(matcher)); }

}  // namespace baton::engine
