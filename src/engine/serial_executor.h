// Runs cycles on a backend: one after the other, each to its end, on a thread of its own.
//
// A cycle: fold (rows of the one before that count), draft, verify, draws and what of them counts, commit (the drafter is told). A slot's
// place, which the scheduler knows only at least, is here.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "cache/budget.h"
#include "cache/registry.h"
#include "engine/block_draws.h"
#include "engine/cycle_executor.h"
#include "engine/slot_constraints.h"
#include "engine/slot_sampling.h"
#include "model/drafter.h"
#include "model/glm5_next.h"
#include "model/launch_rows.h"

namespace baton::engine {

// The model's ranges of pages and slots, as the caches know them.
cache::Registry register_ranges(const model::CacheLayout& layout);

class SerialExecutor final : public CycleExecutor {
 public:
  // Allocates what the budget says. Draws ids below `vocabulary`, at most the model's. `model` and `backend` outlive the executor, and
  // nobody else runs ops meanwhile. `drafter` may be null; otherwise it is the one that the model was loaded for. `sampled_proposals`: it
  // says what it draws its drafts from, and where there is a temperature they are judged by that.
  static Result<std::unique_ptr<SerialExecutor>> create(model::Glm5Next& model, ops::Backend& backend, const cache::Budget& budget,
                                                        int64_t context_tokens, int64_t vocabulary,
                                                        std::unique_ptr<model::Drafter> drafter = nullptr, bool sampled_proposals = false);
  ~SerialExecutor() override;  // waits for the cycles that were launched

  // Where pages and slots lie, for those who write into them from outside: ids, sizes and ranges are the budget's and the layout's.
  ops::PagePoolView pages() const { return {pages_.data(), registry_.page_bytes()}; }
  ops::SlotPoolView slots() const { return {slots_.data(), registry_.slot_bytes()}; }

  // Bytes that it allocates beside pools and the drafter: they are the budget's, too.
  static int64_t workspace_bytes(const model::Glm5Next& model, int64_t slots, int64_t context_tokens, bool sampled_proposals = false);

  void launch(const sched::Cycle& cycle, std::span<const BoundChoice> bound) override;
  const CycleResult* poll() override;
  void on_result(std::function<void()> notify) override { notify_ = std::move(notify); }

  // Runs one cycle on the calling thread. For tests and measurements that want no thread in between; not beside launch().
  void run(const sched::Cycle& cycle, std::span<const BoundChoice> bound, CycleResult& result);

 private:
  SerialExecutor(model::Glm5Next& model, ops::Backend& backend, const cache::Budget& budget, int64_t context_tokens, int64_t vocabulary,
                 std::unique_ptr<model::Drafter> drafter, bool sampled_proposals);

  struct Job {
    sched::Cycle cycle;
    std::vector<BoundChoice> bound;
    CycleResult result;
  };
  // What an entry of Cycle::rows comes to.
  struct Run {
    ops::SequenceRows rows;  // row_count 0: the slot has no row left
    bool decodes;            // rows of drawn tokens: the anchor, and drafts
    int32_t kept;            // rows that count
    bool draws = false;      // its last row's token is drawn in this cycle
    int64_t proposal = -1;   // of its first draft, in proposals_; -1: its drafts are guesses
  };

  void serve();
  void move(const sched::Move& move);
  void true_state(int32_t slot) { model_.materialise({&slot, 1}, slots()); }

  void begin(const sched::Cycle& cycle);
  void fold(const sched::Cycle& cycle);
  void draft(const sched::Cycle& cycle);
  void forward();
  void score(const sched::Cycle& cycle, CycleResult& result);
  void draw(const sched::Cycle& cycle, CycleResult& result);
  void settle(const sched::Cycle& cycle, const CycleResult& result);
  void commit(const sched::Cycle& cycle);
  void commit_elsewhere(const sched::Cycle& cycle);
  void tell_drafter(int64_t rows);

  int64_t row_bytes() const { return model_.config().hidden_size * dtype_bytes(model_.numerics().activation); }
  MatrixView hidden(const Buffer& buffer, int64_t rows) const;
  MatrixView features(const Buffer& buffer, int64_t rows) const;
  ConstMatrixView hidden_of(int32_t slot) const;  // the last hidden row that it holds
  model::ForwardInput upload(std::span<const ops::SequenceRows> sequences, std::span<const int32_t> ids, int64_t reach = 0);

  model::Glm5Next& model_;
  ops::Backend& backend_;
  cache::Registry registry_;
  int64_t context_pages_;
  std::unique_ptr<model::Drafter> drafter_;
  int32_t most_drafts_;
  int32_t proposal_tokens_;  // of each draft; 0: drafts are guesses
  bool ends_at_pages_;       // blocks do, whatever the cycle says
  Buffer pages_, slots_, snapshots_, host_pages_, host_slots_;
  Buffer hidden_, features_;            // of the cycle's rows
  Buffer kept_hidden_, kept_features_;  // of those that count, for the drafter
  std::optional<model::LaunchRowsBuffer> arrays_;
  std::optional<BlockDraws> draws_;

  std::vector<std::vector<int32_t>> tables_;  // by slot
  std::vector<int32_t> lengths_;              // by slot: rows that count
  std::vector<int32_t> limits_;               // by slot: where rows end
  std::vector<int32_t> last_tokens_;          // by slot
  SlotSampling sampling_;
  SlotConstraints constraints_;

  // Of the running cycle.
  std::vector<Run> runs_;          // by Cycle::rows
  std::vector<int32_t> ids_;       // of all rows
  std::vector<int32_t> next_ids_;  // the tokens behind them, of those that count
  std::vector<ops::SequenceRows> sequences_;
  std::vector<int32_t> sequence_ids_;
  std::vector<size_t> drafting_;  // indices into runs_, those that draft most first
  std::vector<int32_t> counts_;
  std::vector<int32_t> drafts_;
  std::vector<int32_t> proposed_;               // [slots, most_drafts_, proposal_tokens_]: what they were drawn from
  std::vector<float> proposed_probabilities_;   // likewise
  std::vector<speculate::Proposal> proposals_;  // [slots, most_drafts_] views of these
  std::vector<ops::SamplingRow> rows_;
  std::vector<BlockSource> blocks_;
  std::vector<ops::LogitBias> forced_;  // by row of a score
  std::vector<int32_t> scored_;         // likewise
  std::vector<int32_t> folding_;

  std::function<void()> notify_ = [] {};
  std::array<Job, sched::kCyclesInFlight> jobs_;
  int64_t launched_ = 0, done_ = 0, polled_ = 0;  // under mutex_; job i lives in jobs_[i % size]
  bool stopping_ = false;                         // likewise
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace baton::engine
