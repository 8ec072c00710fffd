#include "engine/serial_executor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/batch.h"

namespace baton::engine {

using sched::Cycle;
using sched::Move;
using sched::MoveKind;

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

SerialExecutor::Workspace SerialExecutor::workspace(const model::Glm5Next& model, int64_t slots, int64_t context_tokens) {
  constexpr int64_t kHeader = sizeof(ops::SequenceRows) / sizeof(int32_t);
  const model::Config& config = model.config();
  const int64_t context_pages = (context_tokens + ops::kPageTokens - 1) / ops::kPageTokens;
  const int64_t max_rows = model.options().max_rows;
  const int64_t hidden_row = config.hidden_size * dtype_bytes(model.numerics().activation);
  return {.inputs = (3 * max_rows + slots * (kHeader + context_pages)) * int64_t{sizeof(int32_t)},
          .hidden = max_rows * hidden_row,
          .drawn_hidden = slots * hidden_row,
          .logits = slots * config.vocab_size * int64_t{sizeof(float)}};
}

Result<std::unique_ptr<SerialExecutor>> SerialExecutor::create(model::Glm5Next& model, ops::Backend& backend, const cache::Budget& budget,
                                                               int64_t context_tokens, int64_t vocabulary) {
  std::unique_ptr<SerialExecutor> e(new SerialExecutor(model, backend, budget, context_tokens, vocabulary));
  const int64_t slots = budget.slots;
  const Workspace workspace = SerialExecutor::workspace(model, slots, context_tokens);
  BATON_ASSIGN(e->pages_, backend.allocate(budget.pages * e->registry_.page_bytes()));
  BATON_ASSIGN(e->slots_, backend.allocate(slots * e->registry_.slot_bytes()));
  BATON_ASSIGN(e->snapshots_, backend.allocate(budget.snapshots * e->registry_.snapshot_bytes()));
  BATON_ASSIGN(e->host_pages_, allocate_host(budget.host_pages * e->registry_.page_bytes()));
  BATON_ASSIGN(e->host_slots_, allocate_host(budget.host_slots * e->registry_.slot_bytes()));
  BATON_ASSIGN(e->inputs_, backend.allocate(workspace.inputs));
  BATON_ASSIGN(e->hidden_, backend.allocate(workspace.hidden));
  BATON_ASSIGN(e->drawn_hidden_, backend.allocate(workspace.drawn_hidden));
  BATON_ASSIGN(e->logits_, backend.allocate(workspace.logits));
  e->staging_.reserve(static_cast<size_t>(e->inputs_.bytes()) / sizeof(int32_t));
  e->thread_ = std::thread([executor = e.get()] { executor->serve(); });
  return e;
}

SerialExecutor::SerialExecutor(model::Glm5Next& model, ops::Backend& backend, const cache::Budget& budget, int64_t context_tokens,
                               int64_t vocabulary)
    : model_(model), backend_(backend), registry_(register_ranges(model.cache_layout())),
      context_pages_((context_tokens + ops::kPageTokens - 1) / ops::kPageTokens), vocabulary_(vocabulary),
      tables_(static_cast<size_t>(budget.slots), std::vector<int32_t>(static_cast<size_t>(context_pages_), 0)),
      last_tokens_(static_cast<size_t>(budget.slots), 0), sampling_(budget.slots, vocabulary), constraints_(budget.slots) {
  BATON_CHECK(vocabulary >= 1 && vocabulary <= model.config().vocab_size);
  BATON_CHECK(model.options().max_sequences >= budget.slots && model.options().max_logits_rows >= budget.slots);
  BATON_CHECK(model.options().max_pages >= context_pages_);
  rows_.reserve(static_cast<size_t>(budget.slots));
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
  for (size_t i = 0; i < cycle.binds.size(); ++i) {
    const sched::Bind& b = cycle.binds[i];
    constraints_.bind(b, bound[i].constraint);
    sampling_.bind(b, *bound[i].request,
                   std::span(cycle.history).subspan(static_cast<size_t>(b.history_begin), static_cast<size_t>(b.history_count)));
  }
  for (const sched::TableEdit& e : cycle.table_edits) tables_[static_cast<size_t>(e.slot)][static_cast<size_t>(e.index)] = e.page;
  for (const Move& m : cycle.before) move(m);
  if (!cycle.rows.empty()) forward(cycle);
  score(cycle, result);
  draw(cycle, result);
  for (const Move& m : cycle.after) move(m);
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
      true_state(m.from);
      for (const cache::Registry::Copy& c : registry_.snapshot_copies())
        backend_.copy_on_device(snapshots_.data() + m.to * snapshot + c.snapshot_offset, slots().slot(m.from) + c.slot_offset, c.bytes);
      return;
    case MoveKind::kForkSlot: true_state(m.from); return backend_.copy_on_device(slots().slot(m.to), slots().slot(m.from), slot);
    case MoveKind::kCopyPage: return backend_.copy_on_device(pages().page(m.to), pages().page(m.from), page);
    case MoveKind::kSlotToHost:
      true_state(m.from);
      return backend_.copy_to_host(host_slots_.data() + m.to * slot, slots().slot(m.from), slot);
    case MoveKind::kPageToHost: return backend_.copy_to_host(host_pages_.data() + m.to * page, pages().page(m.from), page);
    case MoveKind::kSlotFromHost: return backend_.copy_to_device(slots().slot(m.to), host_slots_.data() + m.from * slot, slot);
    case MoveKind::kPageFromHost: return backend_.copy_to_device(pages().page(m.to), host_pages_.data() + m.from * page, page);
  }
}

// ids | sequences | row_sequence | positions | page tables, uploaded at once. Tables are as wide as the longest sequence needs.
model::ForwardInput SerialExecutor::stage(const Cycle& cycle) {
  const auto n = static_cast<int64_t>(cycle.rows.size());
  const int64_t m = cycle.row_count();
  BATON_CHECK_MSG(m <= model_.options().max_rows, "{} rows, planned for {}", m, model_.options().max_rows);
  int64_t width = 0;
  for (const sched::Rows& r : cycle.rows)
    width = std::max<int64_t>(width, (r.position + r.count + ops::kPageTokens - 1) / ops::kPageTokens);
  constexpr int64_t kHeader = sizeof(ops::SequenceRows) / sizeof(int32_t);
  staging_.resize(static_cast<size_t>(3 * m + n * (kHeader + width)));
  int32_t* id = staging_.data();
  int32_t* sequence = id + m;
  int32_t* owner = sequence + n * kHeader;
  int32_t* position = owner + m;
  int32_t* table = position + m;
  const int64_t sequences_at = sequence - id, owners_at = owner - id, positions_at = position - id, tables_at = table - id;

  int32_t row = 0;
  for (int64_t q = 0; q < n; ++q) {
    const sched::Rows& r = cycle.rows[static_cast<size_t>(q)];
    const ops::SequenceRows header{row, r.count, r.position, r.slot, 0};
    std::memcpy(sequence, &header, sizeof header);
    sequence += kHeader;
    if (r.ids_begin == sched::kDrawnToken)
      *id++ = last_tokens_[static_cast<size_t>(r.slot)];
    else
      id = std::copy_n(cycle.ids.begin() + r.ids_begin, r.count, id);
    for (int32_t i = 0; i < r.count; ++i) {
      *owner++ = static_cast<int32_t>(q);
      *position++ = r.position + i;
    }
    table = std::copy_n(tables_[static_cast<size_t>(r.slot)].begin(), width, table);
    row += r.count;
  }
  backend_.copy_to_device(inputs_.data(), staging_.data(), static_cast<int64_t>(staging_.size() * sizeof(int32_t)));

  const auto* device = reinterpret_cast<const int32_t*>(inputs_.data());
  model::ForwardInput input;
  input.ids = device;
  input.rows.batch = {.sequences = reinterpret_cast<const ops::SequenceRows*>(device + sequences_at),
                      .sequence_count = static_cast<int32_t>(n),
                      .row_count = static_cast<int32_t>(m),
                      .row_sequence = device + owners_at,
                      .positions = device + positions_at,
                      .page_tables = device + tables_at,
                      .page_table_stride = static_cast<int32_t>(width)};
  input.rows.pages = pages();
  input.rows.slots = slots();
  return input;
}

void SerialExecutor::forward(const Cycle& cycle) {
  const model::ForwardInput input = stage(cycle);
  const int64_t d = model_.config().hidden_size;
  hidden_rows_ = {hidden_.data(), model_.numerics().activation, input.rows.batch.row_count, d, d};
  model_.forward(input, hidden_rows_);
  int64_t end = 0;
  for (const sched::Rows& r : cycle.rows) {
    end += r.count;
    backend_.copy_on_device(slots().slot(r.slot) + model_.cache_layout().hidden_offset, hidden_rows_.row_bytes(end - 1),
                            d * dtype_bytes(hidden_rows_.dtype));
  }
}

// The sampling op gives the log-probability of what it draws; a large bias makes it draw the token that is there. As many rows at a time as
// there is room for logits.
void SerialExecutor::score(const Cycle& cycle, CycleResult& result) {
  constexpr float kForce = std::numeric_limits<float>::max() / 4;
  const int64_t v = model_.config().vocab_size;
  const int64_t most = logits_.bytes() / (v * int64_t{sizeof(float)});
  if (result.scores.size() < cycle.scores.size()) result.scores.resize(cycle.scores.size());
  for (size_t i = 0; i < cycle.scores.size(); ++i) {
    const sched::Score& s = cycle.scores[i];
    CycleResult::Score& to = result.scores[i];
    const auto k = static_cast<size_t>(s.logprobs);
    to.position = cycle.rows[static_cast<size_t>(s.rows)].position + s.first + 1;
    to.logprobs.resize(static_cast<size_t>(s.count));
    to.top.resize(static_cast<size_t>(s.count) * k);
    int64_t row = s.first;
    for (int32_t r = 0; r < s.rows; ++r) row += cycle.rows[static_cast<size_t>(r)].count;
    for (int64_t done = 0; done < s.count; done += most) {
      const int64_t n = std::min<int64_t>(most, s.count - done);
      const int32_t* ids = cycle.ids.data() + s.ids_begin + done;
      forced_.clear();
      rows_.clear();
      for (int64_t j = 0; j < n; ++j) forced_.push_back({ids[j], kForce});
      for (int64_t j = 0; j < n; ++j) rows_.push_back({.bias = &forced_[static_cast<size_t>(j)], .bias_count = 1, .logprobs = s.logprobs});
      scored_.resize(static_cast<size_t>(n));
      const MatrixView hidden{hidden_rows_.row_bytes(row + done), hidden_rows_.dtype, n, hidden_rows_.cols, hidden_rows_.stride};
      const MatrixView logits{logits_.data(), DType::kF32, n, v, v};
      float* logprobs = to.logprobs.data() + done;
      model_.head(hidden, logits);
      model_.sample({.logits = logits.columns(0, vocabulary_),
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
  const auto n = static_cast<int64_t>(cycle.draws.size());
  result.tokens.resize(static_cast<size_t>(n));
  result.problems.clear();
  if (n == 0) return;
  const int64_t d = model_.config().hidden_size;
  const int64_t v = model_.config().vocab_size;
  const MatrixView from{drawn_hidden_.data(), hidden_rows_.dtype, n, d, d};
  const MatrixView logits{logits_.data(), DType::kF32, n, v, v};
  rows_.clear();
  int32_t top = 0;
  bool any = false;
  for (int64_t i = 0; i < n; ++i) {
    const sched::Draw& draw = cycle.draws[static_cast<size_t>(i)];
    // The row's sequence left its last hidden row in its slot.
    const sched::Rows& r = cycle.rows[static_cast<size_t>(draw.rows)];
    backend_.copy_on_device(from.row_bytes(i), slots().slot(r.slot) + model_.cache_layout().hidden_offset, d * dtype_bytes(from.dtype));
    rows_.push_back(sampling_.row(draw));
    rows_.back().allowed = constraints_.allowed(draw);
    any = any || rows_.back().logprobs >= 0;
    top = std::max(top, rows_.back().logprobs);
  }
  result.top_stride = top;
  result.logprobs.resize(any ? static_cast<size_t>(n) : 0);
  result.top.resize(static_cast<size_t>(n * top));
  model_.head(from, logits);
  model_.sample({.logits = logits.columns(0, vocabulary_),
                 .rows = rows_.data(),
                 .ids = result.tokens.data(),
                 .logprobs = any ? result.logprobs.data() : nullptr,
                 .top = top > 0 ? result.top.data() : nullptr,
                 .top_stride = top});
  for (int64_t i = 0; i < n; ++i) {
    const sched::Draw& draw = cycle.draws[static_cast<size_t>(i)];
    const int32_t slot = draw.slot;
    constraints_.settle(draw, static_cast<int32_t>(i), result);
    last_tokens_[static_cast<size_t>(slot)] = std::max(result.tokens[static_cast<size_t>(i)], 0);  // a failed draw ends its sequence
    sampling_.drawn(slot, result.tokens[static_cast<size_t>(i)]);
  }
}

}  // namespace baton::engine
