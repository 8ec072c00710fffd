#include "server/script_executor.h"

#include <algorithm>
#include <charconv>

namespace baton::tests {
namespace {

// Behind `word` at the beginning of `text`: a number, and the rest behind one space.
bool command(std::string_view& text, std::string_view word, int64_t& number) {
  if (!text.starts_with(word)) return false;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data() + word.size(), end, number);
  if (error != std::errc()) return false;
  text = std::string_view(after, static_cast<size_t>(end - after));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

}  // namespace

ScriptExecutor::ScriptExecutor(const text::Tokenizer& tokenizer, int64_t columns, int32_t slots, std::chrono::microseconds pace)
    : tokenizer_(tokenizer), columns_(columns), pace_(pace), slots_(static_cast<size_t>(slots)),
      mask_((static_cast<size_t>(columns) + 31) / 32), thread_([this] { serve(); }) {}

ScriptExecutor::~ScriptExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

ScriptExecutor::Script ScriptExecutor::script_of(const engine::BoundChoice& bound) const {
  const sched::RequestSpec& request = *bound.request;
  Script script;
  script.prompt = static_cast<int64_t>(request.prompt.size());
  script.constraint = bound.constraint;
  script.end = !request.stop_tokens.empty() ? request.stop_tokens.front() : tokenizer_.id_of("<|endoftext|>").value_or(0);
  const std::string prompt = tokenizer_.decode(request.prompt);
  std::string_view words = prompt;
  constexpr std::string_view kUser = "<|user|>", kAssistant = "<|assistant|>";
  if (const size_t user = words.rfind(kUser); user != std::string_view::npos) {
    words = words.substr(user + kUser.size());
    words = words.substr(0, words.rfind(kAssistant));
  }
  int64_t times = 1;
  command(words, "#fail ", script.fails_at);
  command(words, "#repeat ", times);
  const auto once = tokenizer_.encode(words);
  for (; once.ok() && times > 0; --times) script.tokens.insert(script.tokens.end(), once->begin(), once->end());
  return script;
}

void ScriptExecutor::launch(const sched::Cycle& cycle, std::span<const engine::BoundChoice> bound) {
  {
    const std::lock_guard lock(mutex_);
    Job& job = jobs_[static_cast<size_t>(launched_) % jobs_.size()];
    job.draws = cycle.draws;
    job.binds.clear();
    for (size_t i = 0; i < cycle.binds.size(); ++i) job.binds.emplace_back(cycle.binds[i].slot, script_of(bound[i]));
    job.result.scores.clear();
    for (const sched::Score& s : cycle.scores) {
      engine::CycleResult::Score& to = job.result.scores.emplace_back();
      to.position = cycle.rows[static_cast<size_t>(s.rows)].position + s.first + 1;
      to.logprobs.assign(static_cast<size_t>(s.count), -0.5F);
      for (int32_t i = 0; i < s.count; ++i)
        for (int32_t k = 0; k < s.logprobs; ++k) to.top.push_back({k, -2.0F - static_cast<float>(k)});
    }
    ++launched_;
  }
  changed_.notify_all();
}

int32_t ScriptExecutor::token_of(const Script& script, const sched::Draw& draw, int32_t index, engine::CycleResult& result) {
  const int64_t at = draw.position - script.prompt;
  if (at == script.fails_at) {
    result.failed = true;
    result.error = "the script says so";
  }
  int32_t token = at < static_cast<int64_t>(script.tokens.size()) ? script.tokens[static_cast<size_t>(at)] : script.end;
  if (script.constraint == nullptr) return token;
  const auto next = script.constraint->next(mask_);
  if (!next.ok()) {
    result.problems.push_back({index, next.error()});
    return sched::kConstraintFailed;
  }
  if (*next == engine::Constraint::Next::kOver) return sched::kConstraintOver;
  if (*next == engine::Constraint::Next::kSome) {
    const auto may = [&](int64_t t) { return (mask_[static_cast<size_t>(t) / 32] >> (t % 32) & 1U) != 0; };
    // What may not come is replaced by the first that may.
    for (int64_t t = 0; !may(token); ++t) {
      if (t == columns_) return ops::kNothingAllowed;
      if (may(t)) token = static_cast<int32_t>(t);
    }
  }
  if (const Status s = script.constraint->accept(token); !s.ok()) {
    result.problems.push_back({index, s.error()});
    return sched::kConstraintFailed;
  }
  return token;
}

void ScriptExecutor::serve() {
  constexpr int32_t kTop = 20;
  auto ready = std::chrono::steady_clock::now();
  while (true) {
    Job* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || done_ < launched_; });
      if (stopping_) return;
      job = &jobs_[static_cast<size_t>(done_) % jobs_.size()];
    }
    for (auto& [slot, script] : job->binds) slots_[static_cast<size_t>(slot)] = std::move(script);
    engine::CycleResult& r = job->result;
    r.failed = false;
    r.problems.clear();
    r.tokens.clear();
    r.top_stride = kTop;
    r.logprobs.assign(job->draws.size(), -0.5F);
    r.top.assign(job->draws.size() * kTop, {0, -2.0F});
    for (size_t i = 0; i < job->draws.size(); ++i) {
      const sched::Draw& d = job->draws[i];
      r.tokens.push_back(token_of(slots_[static_cast<size_t>(d.slot)], d, static_cast<int32_t>(i), r));
      r.top[i * kTop] = {std::max(r.tokens.back(), 0), -0.5F};
      for (int32_t k = 1; k < kTop; ++k) r.top[i * kTop + static_cast<size_t>(k)] = {k, -2.0F - static_cast<float>(k)};
    }
    ready = std::max(ready + pace_, std::chrono::steady_clock::now());
    std::this_thread::sleep_until(ready);
    {
      const std::lock_guard lock(mutex_);
      ++done_;
    }
    notify_();
  }
}

const engine::CycleResult* ScriptExecutor::poll() {
  const std::lock_guard lock(mutex_);
  return polled_ == done_ ? nullptr : &jobs_[static_cast<size_t>(polled_++) % jobs_.size()].result;
}

}  // namespace baton::tests
