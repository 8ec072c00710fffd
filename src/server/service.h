// From a request to tokens and back, without HTTP: what the endpoints, `baton eval` and tests ask for generations.
//
//   prepare()  any thread, takes as long as rendering and tokenising: nothing is queued before a request is known to fit
//   form()     waits for the compiler of grammars, only for requests that need one
//   start()    hands it to the engine; from then on its receiver is called
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "api/chat.h"
#include "api/error.h"
#include "server/generation.h"
#include "server/served_model.h"

namespace baton::server {

struct ServiceOptions {
  int64_t most_choices = 1040;  // that run and wait at once; beyond it start() answers 429
  int64_t running = 16;         // of these, those that run
  int output_threads = 1;
  bool trust_assistant = false;  // text of assistant messages may become special tokens
  bool prefix_caching = true;
};

// What does not stand in the body of a request.
struct Caller {
  std::string tenant;                    // prompts of different tenants share no cache
  sched::Time deadline = sched::kNever;  // of the steady clock
  bool timing = false;                   // usage says what time went where
};

class Service {
 public:
  // They outlive it.
  Service(const ServedModel& model, engine::Engine& engine, Metrics& metrics, const ServiceOptions& options);
  // Cancels what is left and waits for its end.
  ~Service();

  const ServedModel& model() const { return model_; }
  engine::Engine& engine() const { return engine_; }
  Metrics& metrics() const { return metrics_; }
  const ServiceOptions& options() const { return options_; }

  // Moves out of the request what it keeps.
  api::ApiResult<Prepared> prepare(api::ChatRequest& request, const Caller& caller) const;
  // A prompt of ids; the output is text that is not told apart.
  api::ApiResult<Prepared> prepare(const api::Request& request, std::vector<int32_t> prompt, const Caller& caller) const;
  // A prompt that is no conversation: added tokens in its text count, since its writer spells the markup. `add_special`: with what the
  // tokeniser puts around a text.
  api::ApiResult<std::vector<int32_t>> encode(const api::Prompt& prompt, bool add_special, std::string_view field) const;
  api::ApiResult<std::vector<int32_t>> prompt_of(api::ChatRequest& request) const;
  api::ApiResult<text::jinja::Rendered> render(const api::ChatRequest& request) const;
  api::ApiResult<std::vector<int32_t>> encode(const text::jinja::Rendered& rendered) const;

  std::optional<api::ApiError> form(Prepared& prepared) const;

  using Generations = std::vector<std::shared_ptr<Generation>>;
  // All prompts or, with an error and before the receiver hears of any, none. Their choices are numbered prompt by prompt.
  api::ApiResult<Generations> start(std::vector<Prepared> prepared, const std::shared_ptr<Receiver>& receiver);
  api::ApiResult<std::shared_ptr<Generation>> start(Prepared prepared, const std::shared_ptr<Receiver>& receiver);
  void cancel_all();
  // Waits until nothing is under way, but no longer than this; whether that is so.
  bool wait_idle(std::chrono::milliseconds limit);
  int64_t open_choices() const { return open_.load(std::memory_order_relaxed); }
  // For Retry-After: seconds after which it makes sense to ask again.
  int64_t retry_after_s() const;

 private:
  std::optional<api::ApiError> check_length(const api::Sampling& sampling, int64_t prompt_tokens) const;
  sched::RequestSpec spec_of(const api::Request& request, std::vector<int32_t> prompt, const Caller& caller) const;
  OutputOptions output_of(const api::Request& request) const;
  std::optional<api::ApiError> reserve(int64_t choices);
  // A generation whose choices have been reserved. On an error they are not any more.
  api::ApiResult<std::shared_ptr<Generation>> start_reserved(Prepared prepared, const std::shared_ptr<Receiver>& receiver,
                                                             const Generation::Placement& placement);
  std::optional<api::ApiError> choose_grammar(api::ChatRequest& request, Prepared& prepared) const;
  void forget(Generation& generation);

  const ServedModel& model_;
  engine::Engine& engine_;
  Metrics& metrics_;
  const ServiceOptions options_;
  std::atomic<int64_t> open_{0};  // choices
  std::atomic<uint64_t> lane_{0};
  mutable std::atomic<uint64_t> unseeded_{0};
  uint64_t seed_key_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<Generation*, std::weak_ptr<Generation>> live_;

  OutputPool pool_;  // first to go
};

}  // namespace baton::server
