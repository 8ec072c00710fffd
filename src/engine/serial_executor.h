// Runs cycles on a backend whose memory the host can read, the CPU: one after the other, each to its end, on a thread of its own.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/budget.h"
#include "cache/registry.h"
#include "engine/cycle_executor.h"
#include "engine/slot_constraints.h"
#include "engine/slot_sampling.h"
#include "model/glm5_next.h"

namespace baton::engine {

// The model's ranges of pages and slots, as the caches know them.
cache::Registry register_ranges(const model::CacheLayout& layout);

class SerialExecutor final : public CycleExecutor {
 public:
  // Allocates what the budget says. Draws ids below `vocabulary`, at most the model's. `model` and `backend` outlive the executor, and
  // nobody else runs ops meanwhile.
  static Result<std::unique_ptr<SerialExecutor>> create(model::Glm5Next& model, ops::Backend& backend, const cache::Budget& budget,
                                                        int64_t context_tokens, int64_t vocabulary);
  ~SerialExecutor() override;  // waits for the cycles that were launched

  // Bytes that it allocates beside pools: they are the budget's, too.
  struct Workspace {
    int64_t inputs, hidden, drawn_hidden, logits;
    int64_t bytes() const { return inputs + hidden + drawn_hidden + logits; }
  };
  static Workspace workspace(const model::Glm5Next& model, int64_t slots, int64_t context_tokens);

  void launch(const sched::Cycle& cycle, std::span<const BoundChoice> bound) override;
  const CycleResult* poll() override;
  void on_result(std::function<void()> notify) override { notify_ = std::move(notify); }

  // Runs one cycle on the calling thread. For tests and measurements that want no thread in between; not beside launch().
  void run(const sched::Cycle& cycle, std::span<const BoundChoice> bound, CycleResult& result);

 private:
  SerialExecutor(model::Glm5Next& model, ops::Backend& backend, const cache::Budget& budget, int64_t context_tokens, int64_t vocabulary);

  struct Job {
    sched::Cycle cycle;
    std::vector<BoundChoice> bound;
    CycleResult result;
  };

  void serve();
  void move(const sched::Move& move);
  void true_state(int32_t slot) { model_.materialise({&slot, 1}, slots()); }
  void forward(const sched::Cycle& cycle);
  void score(const sched::Cycle& cycle, CycleResult& result);
  void draw(const sched::Cycle& cycle, CycleResult& result);
  model::ForwardInput stage(const sched::Cycle& cycle);
  ops::PagePoolView pages() const { return {pages_.data(), registry_.page_bytes()}; }
  ops::SlotPoolView slots() const { return {slots_.data(), registry_.slot_bytes()}; }

  model::Glm5Next& model_;
  ops::Backend& backend_;
  cache::Registry registry_;
  int64_t context_pages_;
  int64_t vocabulary_;
  Buffer pages_, slots_, snapshots_, host_pages_, host_slots_;
  Buffer inputs_, hidden_, drawn_hidden_, logits_;
  MatrixView hidden_rows_;  // of the running cycle

  std::vector<std::vector<int32_t>> tables_;  // by slot
  std::vector<int32_t> last_tokens_;          // by slot
  SlotSampling sampling_;
  SlotConstraints constraints_;
  std::vector<ops::SamplingRow> rows_;
  std::vector<ops::LogitBias> forced_;  // by row of a score
  std::vector<int32_t> scored_;         // likewise
  std::vector<int32_t> staging_;

  std::function<void()> notify_ = [] {};
  std::array<Job, sched::kCyclesInFlight> jobs_;
  int64_t launched_ = 0, done_ = 0, polled_ = 0;  // under mutex_; job i lives in jobs_[i % size]
  bool stopping_ = false;                         // likewise
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace baton::engine
