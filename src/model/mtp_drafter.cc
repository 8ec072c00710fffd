#include "model/mtp_drafter.h"

#include <algorithm>
#include <cstring>

namespace baton::model {
namespace {

constexpr int64_t kInt = sizeof(int32_t);
constexpr int64_t kHeader = sizeof(ops::SequenceRows) / sizeof(int32_t);

}  // namespace

int64_t MtpDrafter::pool_capacity(const Config& config, int64_t max_pages) {
  return std::min(config.topk_pools(), max_pages * ops::kPageTokens / config.index_kpool);
}

MtpDrafter::Seed MtpDrafter::seed_layout(const Config& config, DType activation, int64_t max_pages) {
  Seed s{};
  s.hidden = 0;
  s.pools = align_up(config.hidden_size * dtype_bytes(activation), 64);
  s.count = s.pools + pool_capacity(config, max_pages) * kInt;
  s.tail_begin = s.count + kInt;
  s.bytes = s.tail_begin + kInt;
  return s;
}

Result<DrafterNeeds> MtpDrafter::needs_of(const Config& config, int32_t drafts, DType activation, int64_t context_tokens) {
  if (config.mtp_layers == 0)
    return Error{Error::Kind::kUnsupported,
                 "the model has no MTP layer (num_nextn_predict_layers is 0) to draft with; choose another --speculative-algorithm"};
  const int64_t max_pages = (context_tokens + ops::kPageTokens - 1) / ops::kPageTokens;
  DrafterNeeds needs;
  needs.most_drafts = drafts;
  needs.slot_bytes = seed_layout(config, activation, max_pages).bytes;
  needs.reads_next_token = true;
  return needs;
}

Result<std::unique_ptr<MtpDrafter>> MtpDrafter::create(Glm5Next& target, ops::Backend& backend, const DrafterNeeds& needs,
                                                       int64_t vocabulary) {
  std::unique_ptr<MtpDrafter> d(new MtpDrafter(target, backend, needs, vocabulary));
  BATON_CHECK(d->seed_.bytes <= needs.slot_bytes);
  const ModelOptions& o = target.options();
  const Config& config = target.config();
  BATON_ASSIGN(d->hidden_, backend.allocate(o.max_rows * config.hidden_size * dtype_bytes(o.numerics.activation)));
  BATON_ASSIGN(d->selection_, backend.allocate(o.max_rows * (pool_capacity(config, o.max_pages) + 2) * kInt));
  BATON_ASSIGN(d->logits_, backend.allocate(o.max_sequences * config.vocab_size * int64_t{sizeof(float)}));
  BATON_ASSIGN(d->arrays_, backend.allocate(o.max_sequences * (3 + kHeader) * kInt));
  return d;
}

MtpDrafter::MtpDrafter(Glm5Next& target, ops::Backend& backend, const DrafterNeeds& needs, int64_t vocabulary)
    : target_(target), backend_(backend), needs_(needs), vocabulary_(vocabulary),
      seed_(seed_layout(target.config(), target.numerics().activation, target.options().max_pages)), sampler_(target, backend) {
  const auto n = static_cast<size_t>(target.options().max_sequences);
  staging_.resize(n * static_cast<size_t>(3 + kHeader));
  sampling_.resize(n);
  sampled_.resize(n);
}

MatrixView MtpDrafter::hidden(int64_t rows) const {
  const int64_t d = target_.config().hidden_size;
  return {hidden_.data(), target_.numerics().activation, rows, d, d};
}

ops::Selection MtpDrafter::selection(int64_t rows) const {
  const int64_t capacity = pool_capacity(target_.config(), target_.options().max_pages);
  ops::Selection s;
  s.pool_capacity = static_cast<int32_t>(capacity);
  s.pools = reinterpret_cast<int32_t*>(selection_.data());
  s.counts = s.pools + rows * capacity;
  s.tail_begin = s.counts + rows;
  return s;
}

void MtpDrafter::commit(const CommitInput& input) {
  const int64_t m = input.rows.batch.row_count;
  const MatrixView out = hidden(m);
  const ops::Selection chosen = selection(m);
  target_.mtp({.ids = input.next_ids, .rows = input.rows}, input.hidden, out, chosen, true);
  const int64_t offset = target_.cache_layout().drafter_slot_offset;
  const int64_t width = out.cols * dtype_bytes(out.dtype);
  for (const ops::SequenceRows& s : input.sequences) {
    std::byte* const seed = input.rows.slots.slot(s.slot) + offset;
    const int64_t last = s.row_begin + s.row_count - 1;
    backend_.copy_on_device(seed + seed_.hidden, out.row_bytes(last), width);
    backend_.copy_on_device(seed + seed_.pools, chosen.pools + last * chosen.pool_capacity, chosen.pool_capacity * kInt);
    backend_.copy_on_device(seed + seed_.count, chosen.counts + last, kInt);
    backend_.copy_on_device(seed + seed_.tail_begin, chosen.tail_begin + last, kInt);
  }
}

void MtpDrafter::sample(int64_t n) {
  const int64_t v = target_.config().vocab_size;
  const MatrixView logits{logits_.data(), DType::kF32, n, v, v};
  target_.head(hidden(n), logits);
  sampler_.sample({.logits = logits.columns(0, vocabulary_), .rows = sampling_.data(), .ids = sampled_.data()});
}

void MtpDrafter::draft(const DraftInput& input, int32_t* ids, int64_t stride) {
  auto n = std::ssize(input.sequences);
  const ops::Selection chosen = selection(n);
  const int64_t offset = target_.cache_layout().drafter_slot_offset;
  const MatrixView x = hidden(n);
  const int64_t width = x.cols * dtype_bytes(x.dtype);
  for (int64_t i = 0; i < n; ++i) {
    const std::byte* const seed = input.rows.slots.slot(input.sequences[static_cast<size_t>(i)].slot) + offset;
    backend_.copy_on_device(x.row_bytes(i), seed + seed_.hidden, width);
    backend_.copy_on_device(chosen.pools + i * chosen.pool_capacity, seed + seed_.pools, chosen.pool_capacity * kInt);
    backend_.copy_on_device(chosen.counts + i, seed + seed_.count, kInt);
    backend_.copy_on_device(chosen.tail_begin + i, seed + seed_.tail_begin, kInt);
    sampling_[static_cast<size_t>(i)] = input.sampling[static_cast<size_t>(i)];
  }
  for (int32_t step = 0;; ++step) {
    // Those that draft most come first, so the ones that go on are the first ones.
    while (n > 0 && input.counts[static_cast<size_t>(n) - 1] <= step) --n;
    if (n == 0) return;
    sample(n);
    for (int64_t i = 0; i < n; ++i) {
      ids[i * stride + step] = std::max(sampled_[static_cast<size_t>(i)], 0);
      ++sampling_[static_cast<size_t>(i)].position;
    }
    while (n > 0 && input.counts[static_cast<size_t>(n) - 1] <= step + 1) --n;
    if (n == 0) return;
    // Row `anchor + step` of what has just been drafted.
    int32_t* const id = staging_.data();
    int32_t* const sequence = id + n;
    int32_t* const owner = sequence + n * kHeader;
    int32_t* const position = owner + n;
    for (int64_t i = 0; i < n; ++i) {
      const ops::SequenceRows& anchor = input.sequences[static_cast<size_t>(i)];
      const ops::SequenceRows row{static_cast<int32_t>(i), 1, anchor.position + step, anchor.slot, 0};
      id[i] = ids[i * stride + step];
      std::memcpy(sequence + i * kHeader, &row, sizeof row);
      owner[i] = static_cast<int32_t>(i);
      position[i] = row.position;
    }
    backend_.copy_to_device(arrays_.data(), id, n * (3 + kHeader) * kInt);
    const auto* device = reinterpret_cast<const int32_t*>(arrays_.data());
    ForwardInput rows{.ids = device, .rows = input.rows};
    rows.rows.batch.sequences = reinterpret_cast<const ops::SequenceRows*>(device + n);
    rows.rows.batch.sequence_count = rows.rows.batch.row_count = static_cast<int32_t>(n);
    rows.rows.batch.row_sequence = device + n + n * kHeader;
    rows.rows.batch.positions = rows.rows.batch.row_sequence + n;
    target_.mtp(rows, hidden(n), hidden(n), chosen, false);
  }
}

}  // namespace baton::model
