// A matcher of the library, and the sleep before its grammar begins.
#include <fmt/format.h>
#include <time.h>

#include "base/check.h"
#include "text/grammar.h"
#include "text/grammar/compiled.h"

namespace baton::text {
namespace {

// Time that others had the processor does not count.
int64_t thread_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

}  // namespace

CompiledGrammar::CompiledGrammar(std::unique_ptr<State> state) : state_(std::move(state)) {}
CompiledGrammar::~CompiledGrammar() = default;
size_t CompiledGrammar::bytes() const { return state_->bytes; }

struct GrammarMatcher::State {
  GrammarCompiler::Compiled grammar;
  FfiValue matcher;
  std::shared_ptr<const std::vector<int32_t>> row_before;  // what may come before the grammar begins
  std::optional<int32_t> begins_after;
  bool begun = true;
  bool terminated = false;
  size_t before = 0;  // tokens accepted before the grammar began, the one that begins it included
  size_t inside = 0;  // and after

  const CompiledGrammar::State* compiled = nullptr;  // of `grammar`

  const GrammarBackend& backend() const { return *compiled->backend; }
};

Status GrammarMatcher::in_time(int64_t begin_us) const {
  const int64_t took = thread_us() - begin_us, limit = state_->compiled->mask_us;
  if (took <= limit) return {};
  return Error{Error::Kind::kExhausted,
               fmt::format("the grammar has become too ambiguous for this output: a token took {} us, and may take {}", took, limit)};
}

GrammarMatcher::GrammarMatcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;

Result<GrammarMatcher> GrammarMatcher::create(GrammarCompiler::Compiled grammar, Options options) {
  auto state = std::make_unique<State>();
  state->compiled = grammar->state_.get();
  state->grammar = std::move(grammar);
  const GrammarBackend& backend = state->backend();
  BATON_ASSIGN(state->matcher, backend.matcher(state->compiled->grammar));
  if (options.begins_after) {
    state->begins_after = options.begins_after;
    state->begun = false;
    std::vector<int32_t> row(backend.every().begin(), backend.every().end());
    const auto forbid = [&](int32_t id) {
      if (id >= 0 && static_cast<size_t>(id) / 32 < row.size()) row[static_cast<size_t>(id) / 32] &= ~static_cast<int32_t>(1U << id % 32);
    };
    for (const int32_t id : backend.stop_ids()) forbid(id);
    for (const int32_t id : options.not_before) forbid(id);
    state->row_before = std::make_shared<const std::vector<int32_t>>(std::move(row));
  }
  return GrammarMatcher(std::move(state));
}

size_t GrammarMatcher::row_words() const { return state_->backend().row_words(); }
bool GrammarMatcher::begun() const { return state_->begun; }
bool GrammarMatcher::terminated() const { return state_->terminated; }
size_t GrammarMatcher::accepted() const { return state_->before + state_->inside; }

Result<bool> GrammarMatcher::fill(std::span<int32_t> row) {
  const State& s = *state_;
  BATON_CHECK(row.size() == row_words());
  if (!s.begun) {
    std::copy(s.row_before->begin(), s.row_before->end(), row.begin());
    return true;
  }
  if (s.terminated) {
    std::copy(s.backend().every().begin(), s.backend().every().end(), row.begin());
    return false;
  }
  const int64_t begin = thread_us();
  BATON_ASSIGN(const bool restricts, s.backend().fill(s.matcher, row));
  BATON_TRY(in_time(begin));
  return restricts;
}

Result<bool> GrammarMatcher::accept(int32_t token) {
  State& s = *state_;
  if (s.terminated || token < 0 || static_cast<size_t>(token) / 32 >= row_words()) return false;
  if (!s.begun) {
    const auto word = static_cast<uint32_t>((*s.row_before)[static_cast<size_t>(token) / 32]);
    if ((word >> token % 32 & 1) == 0) return false;
    ++s.before;
    s.begun = token == *s.begins_after;
    return true;
  }
  const int64_t begin = thread_us();
  BATON_ASSIGN(const bool accepted, s.backend().accept(s.matcher, token));
  BATON_TRY(in_time(begin));
  if (!accepted) return false;
  ++s.inside;
  BATON_ASSIGN(s.terminated, s.backend().terminated(s.matcher));
  return true;
}

Status GrammarMatcher::rollback(size_t tokens) {
  State& s = *state_;
  BATON_CHECK(tokens <= accepted());
  const size_t inside = std::min(tokens, s.inside);
  if (inside > 0) {
    BATON_TRY(s.backend().rollback(s.matcher, inside));
    s.inside -= inside;
    s.terminated = false;  // the stop id was the last one
  }
  if (tokens > inside) {
    // The token that began the grammar is the last one before it.
    s.before -= tokens - inside;
    s.begun = false;
  }
  return {};
}

Result<size_t> GrammarMatcher::fill_along(std::span<const int32_t> draft, std::span<int32_t> rows) {
  const size_t words = row_words(), start = accepted();
  BATON_CHECK(rows.size() == (draft.size() + 1) * words);
  size_t counting = 0;
  for (size_t i = 0; i <= draft.size(); ++i) {
    BATON_ASSIGN([[maybe_unused]] const bool restricts, fill(rows.subspan(i * words, words)));
    ++counting;
    if (i == draft.size()) break;
    BATON_ASSIGN(const bool may, accept(draft[i]));
    if (!may || terminated()) break;
  }
  for (size_t i = counting; i <= draft.size(); ++i)
    std::copy(state_->backend().every().begin(), state_->backend().every().end(), rows.begin() + static_cast<ptrdiff_t>(i * words));
  BATON_TRY(rollback(accepted() - start));
  return counting;
}

Result<GrammarMatcher> GrammarMatcher::fork() const {
  auto state = std::make_unique<State>();
  state->grammar = state_->grammar;
  state->compiled = state_->compiled;
  state->row_before = state_->row_before;
  state->begins_after = state_->begins_after;
  state->begun = state_->begun;
  state->terminated = state_->terminated;
  state->before = state_->before;
  state->inside = state_->inside;
  BATON_ASSIGN(state->matcher, state_->backend().fork(state_->matcher));
  return GrammarMatcher(std::move(state));
}

}  // namespace baton::text
