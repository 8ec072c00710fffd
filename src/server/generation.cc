#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::server {

Generation::Generation(const Surroundings& around, Prepared prepared, std::shared_ptr<Receiver> receiver, const Placement& placement)
    : around_(around), prepared_(std::move(prepared)), receiver_(std::move(receiver)), placement_(placement),
      prompt_tokens_(static_cast<int64_t>(prepared_.spec.prompt.size())) {
  const auto choices = static_cast<size_t>(prepared_.spec.choices);
  outputs_.reserve(choices);
  drafts_.resize(choices);
  for (size_t c = 0; c < choices; ++c) outputs_.emplace_back(prepared_.output);
  last_token_.resize(choices);
  if (prepared_.spec.sampling.prompt_logprobs >= 0) prompt_ = prepared_.spec.prompt;
}

Status Generation::start() {
  std::unique_lock lock(mutex_);
  self_ = shared_from_this();
  started_ = Clock::now();
  lock.unlock();
  auto id = around_.engine.submit(std::move(prepared_.spec), *this, std::move(prepared_.constraint));
  lock.lock();
  if (!id.ok()) {
    self_.reset();
    return id.error();
  }
  id_ = *id;
  around_.metrics.requests.fetch_add(1, std::memory_order_relaxed);
  around_.metrics.open.fetch_add(1, std::memory_order_relaxed);
  if (cancelled_) around_.engine.cancel(id_);
  return {};
}

void Generation::cancel() {
  const std::lock_guard lock(mutex_);
  // After the engine's last word there is nothing to cancel.
  if (!cancelled_ && id_ != 0 && self_ != nullptr) around_.engine.cancel(id_);
  cancelled_ = true;
}

void Generation::on_event(const sched::Event& event, float logprob, std::span<const ops::TokenLogprob> top) {
  std::unique_lock lock(mutex_);
  id_ = event.request;  // start() may not know it yet
  cached_ = event.usage.cached_tokens;
  if (waited_ == 0) waited_ = event.usage.waited;
  items_.push_back({event.choice,
                    event.token,
                    event.reason,
                    event.last,
                    logprob,
                    static_cast<int32_t>(tops_.size()),
                    static_cast<int32_t>(top.size()),
                    {event.usage.drafted_tokens, event.usage.accepted_tokens},
                    Clock::now()});
  tops_.insert(tops_.end(), top.begin(), top.end());
  enqueue(lock);
}

void Generation::on_prompt_logprobs(int32_t, std::span<const float> logprobs, std::span<const ops::TokenLogprob> top) {
  const std::lock_guard lock(mutex_);
  prompt_logprobs_.insert(prompt_logprobs_.end(), logprobs.begin(), logprobs.end());
  prompt_tops_.insert(prompt_tops_.end(), top.begin(), top.end());
}

void Generation::tell_prompt() {
  std::vector<float> logprobs;
  std::vector<ops::TokenLogprob> tops;
  {
    const std::lock_guard lock(mutex_);
    logprobs.swap(prompt_logprobs_);
    tops.swap(prompt_tops_);
  }
  const text::Tokenizer& tokenizer = *prepared_.output.tokenizer;
  const size_t k = logprobs.empty() ? 0 : tops.size() / logprobs.size();
  std::vector<api::TokenLogprobs> entries(prompt_.size());
  for (size_t i = 0; i < prompt_.size(); ++i) {
    api::TokenLogprobs& e = entries[i];
    e.known = i > 0 && i <= logprobs.size();
    e.token = {prompt_[i], e.known ? logprobs[i - 1] : 0, std::string(tokenizer.bytes(prompt_[i]))};
    for (size_t t = 0; e.known && t < k; ++t) {
      const ops::TokenLogprob& top = tops[(i - 1) * k + t];
      e.top.push_back({top.token, top.logprob, std::string(tokenizer.bytes(top.token))});
    }
  }
  prompt_.clear();
  receiver_->on_prompt(placement_.first_choice, std::move(entries));
}

void Generation::on_problem(int32_t, const Error& error) {
  const std::lock_guard lock(mutex_);
  problem_ = error;
}

void Generation::on_refused(const Error& error) {
  std::unique_lock lock(mutex_);
  problem_ = error;
  items_.push_back({0, -1, sched::FinishReason::kNone, true, 0, 0, 0, {}, Clock::now()});
  enqueue(lock);
}

void Generation::enqueue(std::unique_lock<std::mutex>& lock) {
  if (queued_) return;
  queued_ = true;
  std::shared_ptr<Generation> self = self_;
  lock.unlock();
  around_.pool.push(placement_.lane, std::move(self));
}

void Generation::run() {
  {
    const std::lock_guard lock(mutex_);
    queued_ = false;
    taken_.swap(items_);
    taken_tops_.swap(tops_);
    cached_taken_ = cached_;
    waited_taken_ = waited_;
  }
  // Before the first event with a token all of the prompt's have come.
  if (!prompt_.empty() && !over_) tell_prompt();
  bool last = false;
  for (const Item& item : taken_) {
    drafts_[static_cast<size_t>(item.choice)] = item.drafts;
    take(item);
    last = last || item.last;
  }
  for (size_t c = 0; c < outputs_.size() && !over_; ++c) {
    ChoiceOutput& output = outputs_[c];
    if (output.news().empty()) continue;
    if (output.news().finish) {
      ++ended_;
      const text::FinishReason reason = output.news().finish->reason;
      around_.metrics.ended.add(reason == text::FinishReason::kToolCalls ? Ended::kToolCalls
                                : reason == text::FinishReason::kLength  ? Ended::kLength
                                                                         : Ended::kStop);
    }
    receiver_->on_news(placement_.first_choice + static_cast<int32_t>(c), output.news(), usage());
    output.forget_news();
  }
  if (!over_) {
    receiver_->on_pause();
    finish_if_all_ended();
  }
  taken_.clear();
  taken_tops_.clear();
  if (!last) return;
  std::shared_ptr<Generation> self;  // the pool's own still holds this
  {
    const std::lock_guard lock(mutex_);
    self.swap(self_);
  }
  around_.over(*this);
}

void Generation::take(const Item& item) {
  using sched::FinishReason;
  if (over_) return;
  ChoiceOutput& output = outputs_[static_cast<size_t>(item.choice)];
  if (item.token >= 0 && !output.ended()) {
    time_token(item);
    const std::span<const ops::TokenLogprob> top =
        std::span(taken_tops_).subspan(static_cast<size_t>(item.top_begin), static_cast<size_t>(item.top_count));
    const bool stops = item.reason == FinishReason::kStop;
    if (output.add({item.token, stops, stops && prepared_.formed && !named(item.token), item.logprob, top})) {
      const std::lock_guard lock(mutex_);
      around_.engine.stop(id_, item.choice);
    }
  }
  if (output.ended()) return;
  switch (item.reason) {
    case FinishReason::kNone:
      if (item.last) fail(Failed::kCancelled, api::ApiError::overloaded(problem().value_or(Error{}).message));
      break;
    case FinishReason::kStop: output.finish(text::FinishReason::kStop, named(item.token) ? std::optional(item.token) : std::nullopt); break;
    case FinishReason::kLength: output.finish(text::FinishReason::kLength); break;
    case FinishReason::kCancelled:
      fail(Failed::kCancelled, api::ApiError::overloaded("The request was cancelled: its client is gone, or the server ends."));
      break;
    case FinishReason::kDeadline:
      fail(Failed::kDeadline, api::ApiError::timeout("The request did not end within the time that it was given."));
      break;
    case FinishReason::kNothingAllowed:
      fail(Failed::kConstraint,
           api::ApiError::invalid("No token is left that may come next; change logit_bias, stop tokens or the form of the output."));
      break;
    case FinishReason::kConstraint:
      fail(Failed::kConstraint, api::ApiError::of(problem().value_or(Error{Error::Kind::kInvalid, "The form of the output failed."})));
      break;
    case FinishReason::kNotFinite:
      fail(Failed::kNotFinite, api::ApiError::internal("The model's numbers are not finite; its checkpoint may be damaged."));
      break;
    case FinishReason::kFailed:
      if (const auto why = problem()) {
        fail(Failed::kPrefill,
             api::ApiError::overloaded(fmt::format("The prompt could not be computed: {}; try again later.", why->message)));
        break;
      }
      fail(Failed::kDevice, api::ApiError::internal("The device failed while it worked on this request; it may be sent again."));
      break;
  }
}

bool Generation::named(int32_t stop) const {
  return std::find(prepared_.client_stops.begin(), prepared_.client_stops.end(), stop) != prepared_.client_stops.end();
}

std::optional<Error> Generation::problem() {
  const std::lock_guard lock(mutex_);
  return problem_;
}

void Generation::time_token(const Item& item) {
  auto& last = last_token_[static_cast<size_t>(item.choice)];
  const auto nanoseconds = [](Clock::duration d) { return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count(); };
  if (last == Clock::time_point{}) {
    if (first_token_ == Clock::time_point{}) {
      first_token_ = item.at;
      around_.metrics.first_token.observe(nanoseconds(item.at - started_));
      around_.metrics.queue.observe(waited_taken_);
    }
  } else {
    around_.metrics.between_tokens.observe(nanoseconds(item.at - last));
  }
  last = item.at;
}

void Generation::fail(Failed cause, api::ApiError error) {
  over_ = true;
  around_.metrics.failed.add(cause);
  cancel();  // other choices may still run
  receiver_->on_end(&error, usage());
}

void Generation::finish_if_all_ended() {
  if (ended_ < outputs_.size()) return;
  over_ = true;
  const api::Usage u = usage();
  Metrics& m = around_.metrics;
  m.whole.observe(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - started_).count());
  m.prompt_tokens.fetch_add(u.prompt, std::memory_order_relaxed);
  m.cached_tokens.fetch_add(u.cached, std::memory_order_relaxed);
  m.completion_tokens.fetch_add(u.completion, std::memory_order_relaxed);
  m.reasoning_tokens.fetch_add(u.reasoning, std::memory_order_relaxed);
  receiver_->on_end(nullptr, u);
}

// Of the prompt so far: in the queue, then until its first token, then since.
api::Timing Generation::timing() const {
  const double queue_s = static_cast<double>(waited_taken_) / 1e9;
  if (first_token_ == Clock::time_point{}) return {.queue_s = queue_s};
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const Clock::time_point last = *std::max_element(last_token_.begin(), last_token_.end());
  return {
      .queue_s = queue_s, .prefill_s = std::max(seconds(first_token_ - started_) - queue_s, 0.0), .decode_s = seconds(last - first_token_)};
}

api::Usage Generation::usage() const {
  api::Usage u;
  u.prompt = prompt_tokens_;
  u.cached = cached_taken_;
  for (const ChoiceOutput& o : outputs_) {
    u.completion += o.tokens();
    u.reasoning += o.reasoning_tokens();
  }
  Drafts all;
  for (const Drafts& d : drafts_) {
    all.drafted += d.drafted;
    all.accepted += d.accepted;
  }
  if (all.drafted > 0) {
    u.drafted = all.drafted;
    u.accepted = all.accepted;
  }
  if (prepared_.timing) u.timing = timing();
  return u;
}

}  // namespace baton::server
