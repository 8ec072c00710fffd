// One prompt on its way: what the engine tells of it, handed to an output thread, and from there to whoever asked.
//
// Threads: the engine's thread only puts events into a list and wakes an output thread. The list holds at most what the request may
// generate. Everything about text happens on the output thread of its lane, where the receiver is called, too.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "api/error.h"
#include "engine/engine.h"
#include "server/choice_output.h"
#include "server/metrics.h"
#include "server/output_pool.h"

namespace baton::server {

// What can be generated from, once read, rendered, tokenised and checked.
struct Prepared {
  sched::RequestSpec spec;
  OutputOptions output;
  std::unique_ptr<text::ToolTypes> tools;  // what `output` points to
  std::unique_ptr<engine::Constraint> constraint;
  // To compile before it can start; grammar_after: once this token ended the reasoning.
  std::optional<text::GrammarSpec> grammar;
  std::string grammar_field;
  std::optional<int32_t> grammar_after;
  std::optional<int32_t> thinking_budget;
  bool formed = false;                // a grammar holds the output
  std::vector<int32_t> client_stops;  // stop tokens that the client named, for the answer to name
  bool timing = false;                // usage has the times
};

// Who asked. Called on the thread of one lane; must not wait.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Before the news, where log-probabilities of the prompt were asked for: an entry for each of its tokens.
  virtual void on_prompt([[maybe_unused]] int32_t first_choice, [[maybe_unused]] std::vector<api::TokenLogprobs> logprobs) {}
  // `usage` is that of the whole prompt so far; `news` may be moved from. The news that end a choice are its last.
  virtual void on_news(int32_t choice, ChoiceNews& news, const api::Usage& usage) = 0;
  // Nothing more for now: a time to write.
  virtual void on_pause() {}
  // Once for each prompt: all choices ended, or an error ended them. Nothing comes after it.
  virtual void on_end(const api::ApiError* error, const api::Usage& usage) = 0;
};

class Generation final : public engine::Sink, public OutputPool::Task, public std::enable_shared_from_this<Generation> {
 public:
  struct Placement {
    int lane = 0;
    int32_t first_choice = 0;  // what the receiver knows choice 0 as
  };
  struct Surroundings {  // they outlive it
    engine::Engine& engine;
    OutputPool& pool;
    Metrics& metrics;
    std::function<void(Generation&)> over;  // once, at the very end
  };
  Generation(const Surroundings& around, Prepared prepared, std::shared_ptr<Receiver> receiver, const Placement& placement);

  // Hands it to the engine. On an error nothing happens, and the receiver is not called.
  Status start();
  // From any thread, also before start() and after the end. The receiver hears of an error.
  void cancel();

  int32_t choices() const { return static_cast<int32_t>(outputs_.size()); }

  void on_event(const sched::Event& event, float logprob, std::span<const ops::TokenLogprob> top) override;
  void on_prompt_logprobs(int32_t first, std::span<const float> logprobs, std::span<const ops::TokenLogprob> top) override;
  void on_problem(int32_t choice, const Error& error) override;
  void on_refused(const Error& error) override;
  void run() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Drafts {
    int64_t drafted = 0, accepted = 0;  // so far
  };
  struct Item {
    int32_t choice, token;
    sched::FinishReason reason;
    bool last;
    float logprob;
    int32_t top_begin, top_count;
    Drafts drafts;  // of the choice
    Clock::time_point at;
  };
  void enqueue(std::unique_lock<std::mutex>& lock);
  void take(const Item& item);
  void tell_prompt();
  void time_token(const Item& item);
  void fail(Failed cause, api::ApiError error);
  void finish_if_all_ended();
  bool named(int32_t stop) const;  // by the client
  std::optional<Error> problem();
  api::Timing timing() const;
  api::Usage usage() const;

  const Surroundings around_;
  Prepared prepared_;
  const std::shared_ptr<Receiver> receiver_;
  const Placement placement_;
  const int64_t prompt_tokens_;
  std::vector<int32_t> prompt_;  // only where its log-probabilities were asked for, until they have been told

  std::mutex mutex_;  // what follows
  std::vector<Item> items_;
  std::vector<ops::TokenLogprob> tops_;
  bool queued_ = false;
  bool cancelled_ = false;
  sched::RequestId id_ = 0;  // 0: not known yet
  int64_t cached_ = 0;
  int64_t waited_ = 0;                // nanoseconds in the queue, of the first choice that was admitted
  std::shared_ptr<Generation> self_;  // until the engine's last word
  std::optional<Error> problem_;
  std::vector<float> prompt_logprobs_;  // of the prompt's tokens from the second on
  std::vector<ops::TokenLogprob> prompt_tops_;

  // Of the output thread.
  std::vector<Item> taken_;
  std::vector<ops::TokenLogprob> taken_tops_;
  std::vector<ChoiceOutput> outputs_;
  std::vector<Drafts> drafts_;  // by choice
  std::vector<Clock::time_point> last_token_;
  Clock::time_point started_, first_token_;
  int64_t cached_taken_ = 0, waited_taken_ = 0;
  size_t ended_ = 0;
  bool over_ = false;
};

}  // namespace baton::server
