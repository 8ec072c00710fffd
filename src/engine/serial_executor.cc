#include "engine/serial_executor.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "ops/batch.h"
#include "speculate/block.h"

namespace baton::engine {

using sched::Cycle;
using sched::Move;
using sched::MoveKind;

namespace {

using Clock = std::chrono::steady_clock;

// Writes how long it has lived.
class Stopwatch {
 public:
  explicit Stopwatch(int64_t& nanoseconds) : nanoseconds_(nanoseconds), begin_(Clock::now()) {}
  ~Stopwatch() { nanoseconds_ = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  int64_t& nanoseconds_;
  Clock::time_point begin_;
};

}  // namespace

cache::Registry register_ranges(const model::CacheLayout& layout) {
  using Kind = model::CacheRange::Kind;
  cache::Registry registry(layout.page_bytes, layout.slot_bytes);
  for (const model::CacheRange& r : layout.ranges) {
    const cache::Lifetime lifetime = r.kind == Kind::kPage    ? cache::Lifetime::kTokens
                                     : r.kind == Kind::kTail  ? cache::Lifetime::kTail
                                     : r.kind == Kind::kState ? cache::Lifetime::kState
                                                              : cache::Lifetime::kCycle;
    registry.add({r.kind == Kind::kPage ? cache::Home::kPage : cache::Home::kSlot, lifetime, r.offset, r.bytes});
  }
  return registry;
}

int64_t SerialExecutor::workspace_bytes(const model::Glm5Next& model, int64_t slots, int64_t context_tokens, bool sampled_proposals) {
  const model::DrafterNeeds& drafter = model.options().drafter;
  const int64_t context_pages = (context_tokens + ops::kPageTokens - 1) / ops::kPageTokens;
  const int64_t max_rows = model.options().max_rows;
  const int64_t row = model.config().hidden_size * dtype_bytes(model.numerics().activation);
  const auto layers = static_cast<int64_t>(drafter.feature_layers.size());
  const int64_t kept = drafter.most_drafts > 0 ? 1 + layers : 0;
  return model::LaunchRowsBuffer::bytes(max_rows, slots, context_pages) + max_rows * row * (1 + layers + kept) +
         BlockDraws::bytes(model, slots * (1 + drafter.most_drafts), sampled_proposals);
}

Result<std::unique_ptr<SerialExecutor>> SerialExecutor::create(model::Glm5Next& model, ops::Backend& backend, const cache::Budget& budget,
                                                               int64_t context_tokens, int64_t vocabulary,
                                                               std::unique_ptr<model::Drafter> drafter, bool sampled_proposals) {
  std::unique_ptr<SerialExecutor> e(
      new SerialExecutor(model, backend, budget, context_tokens, vocabulary, std::move(drafter), sampled_proposals));
  const int64_t slots = budget.slots;
  const int64_t rows = model.options().max_rows * e->row_bytes();
  const auto layers = static_cast<int64_t>(model.options().drafter.feature_layers.size());
  BATON_ASSIGN(e->pages_, backend.allocate(budget.pages * e->registry_.page_bytes()));
  BATON_ASSIGN(e->slots_, backend.allocate(slots * e->registry_.slot_bytes()));
  BATON_ASSIGN(e->snapshots_, backend.allocate(budget.snapshots * e->registry_.snapshot_bytes()));
  BATON_ASSIGN(e->host_pages_, allocate_host(budget.host_pages * e->registry_.page_bytes()));
  BATON_ASSIGN(e->host_slots_, allocate_host(budget.host_slots * e->registry_.slot_bytes()));
  BATON_ASSIGN(e->hidden_, backend.allocate(rows));
  BATON_ASSIGN(e->features_, backend.allocate(rows * layers));
  if (e->drafter_) {
    BATON_ASSIGN(e->kept_hidden_, backend.allocate(rows));
    BATON_ASSIGN(e->kept_features_, backend.allocate(rows * layers));
  }
  BATON_ASSIGN(e->arrays_, model::LaunchRowsBuffer::create(backend, model.options().max_rows, slots, e->context_pages_));
  BATON_ASSIGN(e->draws_, BlockDraws::create(model, backend, slots * (1 + e->most_drafts_), vocabulary, sampled_proposals));
  e->thread_ = std::thread([executor = e.get()] { executor->serve(); });
  return e;
}

SerialExecutor::SerialExecutor(model::Glm5Next& model, ops::Backend& backend, const cache::Budget& budget, int64_t context_tokens,
                               int64_t vocabulary, std::unique_ptr<model::Drafter> drafter, bool sampled_proposals)
    : model_(model), backend_(backend), registry_(register_ranges(model.cache_layout())),
      context_pages_((context_tokens + ops::kPageTokens - 1) / ops::kPageTokens), drafter_(std::move(drafter)),
      most_drafts_(drafter_ ? drafter_->needs().most_drafts : 0),
      proposal_tokens_(sampled_proposals && drafter_ ? drafter_->proposal_tokens() : 0),
      ends_at_pages_(proposal_tokens_ > 0 && budget.snapshots > 0),
      tables_(static_cast<size_t>(budget.slots), std::vector<int32_t>(static_cast<size_t>(context_pages_), 0)),
      lengths_(static_cast<size_t>(budget.slots), 0), limits_(static_cast<size_t>(budget.slots), 0),
      last_tokens_(static_cast<size_t>(budget.slots), 0), sampling_(budget.slots, vocabulary), constraints_(budget.slots) {
  BATON_CHECK(model.options().drafter.most_drafts == most_drafts_);
  BATON_CHECK(model.options().max_sequences >= budget.slots && model.options().max_pages >= context_pages_);
  BATON_CHECK(!sampled_proposals || proposal_tokens_ > 0);
  drafts_.resize(static_cast<size_t>(budget.slots) * static_cast<size_t>(most_drafts_));
  const auto candidates = static_cast<size_t>(proposal_tokens_);
  proposed_.resize(drafts_.size() * candidates);
  proposed_probabilities_.resize(drafts_.size() * candidates);
  if (candidates == 0) return;
  for (size_t i = 0; i < drafts_.size(); ++i)
    proposals_.push_back(
        {std::span(proposed_).subspan(i * candidates, candidates), std::span(proposed_probabilities_).subspan(i * candidates, candidates)});
}

SerialExecutor::~SerialExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SerialExecutor::launch(const Cycle& cycle, std::span<const BoundChoice> bound) {
  Job& job = jobs_[static_cast<size_t>(launched_) % jobs_.size()];
  BATON_CHECK(launched_ - polled_ < sched::kCyclesInFlight);
  job.cycle = cycle;
  job.bound.assign(bound.begin(), bound.end());
  {
    const std::lock_guard lock(mutex_);
    ++launched_;
  }
  changed_.notify_one();
}

const CycleResult* SerialExecutor::poll() {
  const std::lock_guard lock(mutex_);
  if (polled_ == done_) return nullptr;
  return &jobs_[static_cast<size_t>(polled_++) % jobs_.size()].result;
}

void SerialExecutor::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || done_ < launched_; });
    if (done_ == launched_) return;
    Job& job = jobs_[static_cast<size_t>(done_) % jobs_.size()];
    lock.unlock();
    run(job.cycle, job.bound, job.result);
    lock.lock();
    ++done_;
    lock.unlock();
    notify_();
    lock.lock();
  }
}

void SerialExecutor::run(const Cycle& cycle, std::span<const BoundChoice> bound, CycleResult& result) {
  const Stopwatch all(result.times.all);
  for (size_t i = 0; i < cycle.binds.size(); ++i) {
    const sched::Bind& b = cycle.binds[i];
    constraints_.bind(b, bound[i].constraint);
    sampling_.bind(b, *bound[i].request,
                   std::span(cycle.history).subspan(static_cast<size_t>(b.history_begin), static_cast<size_t>(b.history_count)));
    limits_[static_cast<size_t>(b.slot)] = b.rows_limit;
  }
  for (const sched::TableEdit& e : cycle.table_edits) tables_[static_cast<size_t>(e.slot)][static_cast<size_t>(e.index)] = e.page;
  for (const Move& m : cycle.before) move(m);
  begin(cycle);
  {
    const Stopwatch watch(result.times.fold);
    fold(cycle);
  }
  {
    const Stopwatch watch(result.times.draft);
    draft(cycle);
  }
  {
    const Stopwatch watch(result.times.verify);
    forward();
  }
  score(cycle, result);
  {
    const Stopwatch watch(result.times.accept);
    draw(cycle, result);
    settle(cycle, result);
  }
  {
    const Stopwatch watch(result.times.commit);
    commit(cycle);
  }
  for (const Move& m : cycle.after) move(m);
  commit_elsewhere(cycle);
}

void SerialExecutor::move(const Move& m) {
  const int64_t page = registry_.page_bytes();
  const int64_t slot = registry_.slot_bytes();
  const int64_t snapshot = registry_.snapshot_bytes();
  switch (m.kind) {
    case MoveKind::kClearSlot: return backend_.clear_on_device(slots().slot(m.to), slot);
    case MoveKind::kRestore:
      backend_.clear_on_device(slots().slot(m.to), slot);
      for (const cache::Registry::Copy& c : registry_.snapshot_copies())
        backend_.copy_on_device(slots().slot(m.to) + c.slot_offset, snapshots_.data() + m.from * snapshot + c.snapshot_offset, c.bytes);
      return;
    case MoveKind::kSnapshot:
      if (m.at >= 0 && lengths_[static_cast<size_t>(m.from)] != m.at) return;
      true_state(m.from);
      for (const cache::Registry::Copy& c : registry_.snapshot_copies())
        backend_.copy_on_device(snapshots_.data() + m.to * snapshot + c.snapshot_offset, slots().slot(m.from) + c.slot_offset, c.bytes);
      return;
    case MoveKind::kResetRing:
      return backend_.clear_on_device(slots().slot(m.to) + model_.cache_layout().fold_count_offset, sizeof(int32_t));
    case MoveKind::kForkSlot:
      true_state(m.from);
      lengths_[static_cast<size_t>(m.to)] = lengths_[static_cast<size_t>(m.from)];
      return backend_.copy_on_device(slots().slot(m.to), slots().slot(m.from), slot);
    case MoveKind::kCopyPage: return backend_.copy_on_device(pages().page(m.to), pages().page(m.from), page);
    case MoveKind::kSlotToHost:
      true_state(m.from);
      return backend_.copy_to_host(host_slots_.data() + m.to * slot, slots().slot(m.from), slot);
    case MoveKind::kPageToHost: return backend_.copy_to_host(host_pages_.data() + m.to * page, pages().page(m.from), page);
    case MoveKind::kSlotFromHost: return backend_.copy_to_device(slots().slot(m.to), host_slots_.data() + m.from * slot, slot);
    case MoveKind::kPageFromHost: return backend_.copy_to_device(pages().page(m.to), host_pages_.data() + m.from * page, page);
  }
}

model::ForwardInput SerialExecutor::upload(std::span<const ops::SequenceRows> sequences, std::span<const int32_t> ids, int64_t reach) {
  model::ForwardInput input = arrays_->upload(sequences, ids, tables_, reach);
  input.rows.pages = pages();
  input.rows.slots = slots();
  return input;
}

MatrixView SerialExecutor::hidden(const Buffer& buffer, int64_t rows) const {
  const int64_t d = model_.config().hidden_size;
  return {buffer.data(), model_.numerics().activation, rows, d, d};
}

MatrixView SerialExecutor::features(const Buffer& buffer, int64_t rows) const {
  const int64_t cols = model_.config().hidden_size * static_cast<int64_t>(model_.options().drafter.feature_layers.size());
  return cols > 0 ? MatrixView{buffer.data(), model_.numerics().activation, rows, cols, cols} : MatrixView{};
}

// Where each sequence is, and the rows that it has without drafts.
void SerialExecutor::begin(const Cycle& cycle) {
  runs_.clear();
  for (const sched::Rows& r : cycle.rows) {
    const bool decodes = r.ids_begin == sched::kDrawnToken;
    int32_t position = r.position;
    int32_t count = r.count;
    if (decodes) {
      const auto slot = static_cast<size_t>(r.slot);
      position = lengths_[slot];
      BATON_CHECK(position >= r.position);
      count = position < limits_[slot] ? 1 : 0;
    }
    runs_.push_back({{0, count, position, r.slot, 0}, decodes, 0});
  }
}

// What counts of the last cycle's rows becomes the state, before any row of this one.
void SerialExecutor::fold(const Cycle& cycle) {
  if (!drafter_) return;
  folding_.clear();
  for (const sched::Rows& r : cycle.rows) folding_.push_back(r.slot);
  model_.materialise(folding_, slots());
}

// Rows of drafts behind the anchors, and then all ids.
void SerialExecutor::draft(const Cycle& cycle) {
  drafting_.clear();
  const auto wanted = [&](size_t i) {
    const Run& run = runs_[i];
    if (!run.decodes || run.rows.row_count == 0) return 0;
    const int32_t edge = cycle.rows[i].edge;
    int32_t end = limits_[static_cast<size_t>(run.rows.slot)];
    if (run.rows.position < edge) end = std::min(end, edge);
    // What is drawn depends on where blocks end. States are left at page edges where there is room for them, so blocks end at all of these.
    if (ends_at_pages_) end = std::min(end, (run.rows.position / ops::kPageTokens + 1) * ops::kPageTokens);
    return speculate::drafts_that_fit(cycle.rows[i].count - 1, run.rows.position, end);
  };
  for (size_t i = 0; i < runs_.size(); ++i)
    if (wanted(i) > 0) drafting_.push_back(i);
  std::stable_sort(drafting_.begin(), drafting_.end(), [&](size_t a, size_t b) { return wanted(a) > wanted(b); });
  if (!drafting_.empty()) {
    sequences_.clear();
    sequence_ids_.clear();
    counts_.clear();
    rows_.clear();
    for (const size_t i : drafting_) {
      const ops::SequenceRows& r = runs_[i].rows;
      sequences_.push_back({static_cast<int32_t>(sequences_.size()), 1, r.position, r.slot, 0});
      sequence_ids_.push_back(last_tokens_[static_cast<size_t>(r.slot)]);
      counts_.push_back(wanted(i));
      rows_.push_back(sampling_.guess(r.slot, r.position + 1));
    }
    const model::ForwardInput input = upload(sequences_, sequence_ids_, counts_.front());
    const model::DraftProposals proposals{proposed_.data(), proposed_probabilities_.data()};
    drafter_->draft({.sequences = sequences_,
                     .rows = input.rows,
                     .anchors = input.ids,
                     .counts = counts_,
                     .sampling = rows_,
                     .proposals = proposal_tokens_ > 0 ? &proposals : nullptr},
                    drafts_.data(), most_drafts_);
  }
  for (size_t k = 0; k < drafting_.size(); ++k) {
    ops::SequenceRows& r = runs_[drafting_[k]].rows;
    const int32_t* const drafts = drafts_.data() + k * static_cast<size_t>(most_drafts_);
    r.row_count += static_cast<int32_t>(std::find_if(drafts, drafts + counts_[k], [](int32_t t) { return t < 0; }) - drafts);
    r.verify = r.row_count > 1 ? 1 : 0;
    if (proposal_tokens_ > 0 && rows_[k].temperature > 0) runs_[drafting_[k]].proposal = static_cast<int64_t>(k) * most_drafts_;
  }

  ids_.clear();
  for (size_t i = 0; i < runs_.size(); ++i) {
    ops::SequenceRows& r = runs_[i].rows;
    r.row_begin = static_cast<int32_t>(ids_.size());
    ids_.resize(ids_.size() + static_cast<size_t>(r.row_count));
    if (runs_[i].decodes && r.row_count > 0) ids_[static_cast<size_t>(r.row_begin)] = last_tokens_[static_cast<size_t>(r.slot)];
    if (!runs_[i].decodes) std::copy_n(cycle.ids.begin() + cycle.rows[i].ids_begin, r.row_count, ids_.begin() + r.row_begin);
  }
  for (size_t k = 0; k < drafting_.size(); ++k) {
    const ops::SequenceRows& r = runs_[drafting_[k]].rows;
    std::copy_n(drafts_.begin() + static_cast<std::ptrdiff_t>(k) * most_drafts_, r.row_count - 1, ids_.begin() + r.row_begin + 1);
  }
}

void SerialExecutor::forward() {
  if (ids_.empty()) return;
  const auto m = std::ssize(ids_);
  BATON_CHECK_MSG(m <= model_.options().max_rows, "{} rows, planned for {}", m, model_.options().max_rows);
  sequences_.clear();
  for (const Run& r : runs_)
    if (r.rows.row_count > 0) sequences_.push_back(r.rows);
  model_.forward(upload(sequences_, ids_), hidden(hidden_, m), features(features_, m));
}

// The sampling op gives the log-probability of what it draws; a large bias makes it draw the token that is there. As many rows at a time as
// there is room for logits.
void SerialExecutor::score(const Cycle& cycle, CycleResult& result) {
  constexpr float kForce = std::numeric_limits<float>::max() / 4;
  const int64_t most = draws_->most_rows();
  if (result.scores.size() < cycle.scores.size()) result.scores.resize(cycle.scores.size());
  for (size_t i = 0; i < cycle.scores.size(); ++i) {
    const sched::Score& s = cycle.scores[i];
    CycleResult::Score& to = result.scores[i];
    const auto k = static_cast<size_t>(s.logprobs);
    to.position = cycle.rows[static_cast<size_t>(s.rows)].position + s.first + 1;
    to.logprobs.resize(static_cast<size_t>(s.count));
    to.top.resize(static_cast<size_t>(s.count) * k);
    const int64_t row = runs_[static_cast<size_t>(s.rows)].rows.row_begin + s.first;
    for (int64_t done = 0; done < s.count; done += most) {
      const int64_t n = std::min<int64_t>(most, s.count - done);
      const int32_t* ids = cycle.ids.data() + s.ids_begin + done;
      forced_.clear();
      rows_.clear();
      for (int64_t j = 0; j < n; ++j) forced_.push_back({ids[j], kForce});
      for (int64_t j = 0; j < n; ++j) rows_.push_back({.bias = &forced_[static_cast<size_t>(j)], .bias_count = 1, .logprobs = s.logprobs});
      scored_.resize(static_cast<size_t>(n));
      const MatrixView logits = draws_->logits(n);
      float* logprobs = to.logprobs.data() + done;
      model_.head(hidden(hidden_, std::ssize(ids_)).row_range(row + done, n), logits);
      draws_->sample({.logits = logits.columns(0, draws_->vocabulary()),
                      .rows = rows_.data(),
                      .ids = scored_.data(),
                      .logprobs = logprobs,
                      .top = k > 0 ? to.top.data() + static_cast<size_t>(done) * k : nullptr,
                      .top_stride = s.logprobs});
      for (int64_t j = 0; j < n; ++j) {
        if (scored_[static_cast<size_t>(j)] == ids[j]) continue;
        const bool impossible = scored_[static_cast<size_t>(j)] >= 0;  // minus infinity cannot be biased away
        logprobs[j] = impossible ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
        if (!impossible)
          std::fill_n(to.top.begin() + static_cast<std::ptrdiff_t>((done + j) * s.logprobs), k, ops::TokenLogprob{-1, logprobs[j]});
      }
    }
  }
}

void SerialExecutor::draw(const Cycle& cycle, CycleResult& result) {
  const MatrixView all = hidden(hidden_, std::ssize(ids_));
  blocks_.clear();
  for (const sched::Draw& d : cycle.draws) {
    if (d.rows == sched::kSlotRow) {
      blocks_.push_back({.slot = d.slot, .position = d.position, .hidden = hidden_of(d.slot), .drafts = {}});
      continue;
    }
    const Run& run = runs_[static_cast<size_t>(d.rows)];
    const ops::SequenceRows& r = run.rows;
    const int32_t rows = run.decodes ? r.row_count : 1;  // of a prompt, the last one
    const int32_t first = r.row_begin + r.row_count - rows;
    blocks_.push_back({.slot = d.slot,
                       .position = r.position + r.row_count - rows + 1,
                       .hidden = rows > 0 ? ConstMatrixView(all.row_range(first, rows)) : ConstMatrixView{},
                       .drafts = rows > 1 ? std::span(ids_).subspan(static_cast<size_t>(first + 1), static_cast<size_t>(rows - 1))
                                          : std::span<const int32_t>{},
                       .proposals = rows > 1 && run.proposal >= 0
                                        ? std::span(proposals_).subspan(static_cast<size_t>(run.proposal), static_cast<size_t>(rows - 1))
                                        : std::span<const speculate::Proposal>{}});
  }
  draws_->run(blocks_, sampling_, constraints_, result);
}

// What counts, for the slots: their places, their last tokens, the last hidden row, and what is to be folded.
void SerialExecutor::settle(const Cycle& cycle, const CycleResult& result) {
  const model::CacheLayout& layout = model_.cache_layout();
  for (Run& run : runs_) run.kept = run.decodes ? 0 : run.rows.row_count;
  for (size_t i = 0; i < cycle.draws.size(); ++i) {
    const int32_t begin = i == 0 ? 0 : result.ends[i - 1];
    const sched::Draw& d = cycle.draws[i];
    const auto slot = static_cast<size_t>(d.slot);
    // A failed draw ends its sequence.
    if (result.ends[i] > begin) last_tokens_[slot] = std::max(result.tokens[static_cast<size_t>(result.ends[i]) - 1], 0);
    if (d.rows == sched::kSlotRow) {
      lengths_[slot] = d.position;  // its rows have run elsewhere
      continue;
    }
    Run& run = runs_[static_cast<size_t>(d.rows)];
    if (run.decodes) run.kept = result.ends[i] - begin;
    run.draws = run.draws || d.slot == run.rows.slot;
  }
  const MatrixView all = hidden(hidden_, std::ssize(ids_));
  for (const Run& run : runs_) {
    if (run.kept == 0) continue;
    lengths_[static_cast<size_t>(run.rows.slot)] = run.rows.position + run.kept;
    std::byte* const slot = slots().slot(run.rows.slot);
    backend_.copy_on_device(slot + layout.hidden_offset, all.row_bytes(run.rows.row_begin + run.kept - 1), row_bytes());
    if (run.rows.verify != 0) backend_.copy_to_device(slot + layout.fold_count_offset, &run.kept, sizeof run.kept);
  }
}

ConstMatrixView SerialExecutor::hidden_of(int32_t slot) const {
  const int64_t d = model_.config().hidden_size;
  return {slots().slot(slot) + model_.cache_layout().hidden_offset, model_.numerics().activation, 1, d, d};
}

// The rows that count, and the token behind each of them. Where that token will be drawn elsewhere, a drafter that reads it hears of the
// last row there.
void SerialExecutor::commit(const Cycle& cycle) {
  if (!drafter_ || ids_.empty()) return;
  const MatrixView rows = hidden(hidden_, std::ssize(ids_));
  const MatrixView to = hidden(kept_hidden_, std::ssize(ids_));
  const MatrixView row_features = features(features_, std::ssize(ids_));
  const MatrixView to_features = features(kept_features_, std::ssize(ids_));
  sequences_.clear();
  next_ids_.clear();
  for (size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const bool left = cycle.rows[i].next == sched::kDrawnToken && !run.draws && drafter_->needs().reads_next_token;
    const int32_t count = left ? run.kept - 1 : run.kept;
    if (count <= 0) continue;
    const auto begin = std::ssize(next_ids_);
    sequences_.push_back({static_cast<int32_t>(begin), count, run.rows.position, run.rows.slot, 0});
    for (int32_t k = 1; k < count; ++k) next_ids_.push_back(ids_[static_cast<size_t>(run.rows.row_begin + k)]);
    const int32_t next = left ? ids_[static_cast<size_t>(run.rows.row_begin + count)] : cycle.rows[i].next;
    next_ids_.push_back(next == sched::kDrawnToken ? last_tokens_[static_cast<size_t>(run.rows.slot)] : next);
    backend_.copy_on_device(to.row_bytes(begin), rows.row_bytes(run.rows.row_begin), count * row_bytes());
    if (row_features.rows > 0)
      backend_.copy_on_device(to_features.row_bytes(begin), row_features.row_bytes(run.rows.row_begin),
                              count * row_features.cols * dtype_bytes(row_features.dtype));
  }
  if (!sequences_.empty()) tell_drafter(std::ssize(next_ids_));
}

// Rows that ran for another slot, or on another instance, with what was drawn behind them here: of choices that have just forked the last
// row of the prompt, and likewise of prompts that landed, if the drafter has not been told of it where they were computed.
void SerialExecutor::commit_elsewhere(const Cycle& cycle) {
  if (!drafter_) return;
  const auto most = static_cast<int64_t>(cycle.draws.size());
  const MatrixView to = hidden(kept_hidden_, most);
  const MatrixView to_features = features(kept_features_, most);
  const MatrixView row_features = features(features_, std::ssize(ids_));
  sequences_.clear();
  next_ids_.clear();
  for (const sched::Draw& d : cycle.draws) {
    const bool landed = d.rows == sched::kSlotRow;
    if (landed ? !drafter_->needs().reads_next_token : d.slot == runs_[static_cast<size_t>(d.rows)].rows.slot) continue;
    const auto at = std::ssize(next_ids_);
    next_ids_.push_back(last_tokens_[static_cast<size_t>(d.slot)]);
    if (landed) {
      BATON_CHECK(to_features.cols == 0);  // the slot does not hold these
      sequences_.push_back({static_cast<int32_t>(at), 1, d.position - 1, d.slot, 0});
      backend_.copy_on_device(to.row_bytes(at), hidden_of(d.slot).row_bytes(0), row_bytes());
      continue;
    }
    const ops::SequenceRows& r = runs_[static_cast<size_t>(d.rows)].rows;
    const int32_t row = r.row_begin + r.row_count - 1;
    sequences_.push_back({static_cast<int32_t>(at), 1, r.position + r.row_count - 1, d.slot, 0});
    backend_.copy_on_device(to.row_bytes(at), hidden(hidden_, std::ssize(ids_)).row_bytes(row), row_bytes());
    if (row_features.rows > 0)
      backend_.copy_on_device(to_features.row_bytes(at), row_features.row_bytes(row), row_features.cols * dtype_bytes(row_features.dtype));
  }
  if (!sequences_.empty()) tell_drafter(std::ssize(next_ids_));
}

void SerialExecutor::tell_drafter(int64_t rows) {
  const model::ForwardInput input = upload(sequences_, next_ids_);
  drafter_->commit({.sequences = sequences_,
                    .rows = input.rows,
                    .next_ids = input.ids,
                    .hidden = hidden(kept_hidden_, rows),
                    .features = features(kept_features_, rows)});
}

}  // namespace baton::engine
