// Ops that work on pages and slots: KDA, latent rows and attention, the indexer; and sampling.
#include <algorithm>
#include <numeric>

#include "backend/pair.h"

namespace baton::pair {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;
constexpr DType kFP8 = DType::kF8E4M3;

double bound_of(DType out) { return out == kF32 ? 2e-5 : 4e-3; }

struct Sequence {
  int32_t rows;
  int32_t position;
  int32_t verify = 0;
};

// A batch with pages in random order and slots 0, 1, ...
ops::BatchView batch_of(Pair& p, const std::vector<Sequence>& sequences, int32_t& pages) {
  ops::BatchView b;
  int32_t rows = 0, last = 0;
  for (const Sequence& s : sequences) {
    rows += s.rows;
    last = std::max(last, s.position + s.rows);
  }
  b.sequence_count = static_cast<int32_t>(sequences.size());
  b.row_count = rows;
  b.page_table_stride = last / ops::kPageTokens + 1;
  auto* header = p.array<ops::SequenceRows>(b.sequence_count);
  auto* owner = p.array<int32_t>(rows);
  auto* position = p.array<int32_t>(rows);
  pages = b.sequence_count * b.page_table_stride;
  auto* table = p.array<int32_t>(pages);
  std::iota(table, table + pages, 0);
  std::shuffle(table, table + pages, p.random());
  int32_t row = 0;
  for (int32_t q = 0; q < b.sequence_count; ++q) {
    const Sequence& s = sequences[static_cast<size_t>(q)];
    header[q] = {row, s.rows, s.position, q, s.verify};
    for (int32_t i = 0; i < s.rows; ++i, ++row) {
      owner[row] = q;
      position[row] = s.position + i;
    }
  }
  b.sequences = header;
  b.row_sequence = owner;
  b.positions = position;
  b.page_tables = table;
  return b;
}

void fill(Pair& p, std::byte* at, DType type, int64_t n, float scale) {
  const MatrixView m{at, type, 1, n, n};
  for (int64_t i = 0; i < n; ++i) Pair::put(m, 0, i, p.normal(scale));
}

void check_recurrence(Pair& p, DType type, DType state_type, int64_t heads, int64_t dim, double bound) {
  const int64_t c = heads * dim;
  const int32_t ring_rows = 8;
  const int64_t element = dtype_bytes(type);
  ops::KdaSlotLayout layout;
  layout.state_offset = 64;
  layout.window_offset = align_up(layout.state_offset + c * dim * dtype_bytes(state_type), 64);
  layout.ring_offset = align_up(layout.window_offset + 9 * c * element, 64);
  layout.ring_rows = ring_rows;
  layout.state_dtype = state_type;
  layout.activation_dtype = type;
  const int64_t stride = align_up(layout.ring_offset + ring_rows * (4 * c + heads) * element, 256);
  ops::KdaWeights w;
  w.conv = p.floats(3 * c * 4, 0.5F);
  w.a_log = p.floats(heads, 0.3F);
  w.dt_bias = p.floats(c, 0.5F);
  w.o_norm = p.floats(dim, 0.2F, 1);
  w.heads = heads;
  w.dim = dim;
  w.norm_eps = 1e-5F;
  w.lower_bound = -5;
  p.name(fmt::format("kda {} x {} {}, state {}", heads, dim, dtype_name(type), dtype_name(state_type)));
  int32_t pages = 0;
  const ops::BatchView batch = batch_of(p, {{1, 5}, {7, 0}, {0, 3}, {5, 20, 1}, {2, 9}, {8, 64, 1}}, pages);
  const int64_t slots = batch.sequence_count;
  auto* folds = p.array<int32_t>(slots);
  for (int i = 0; i < slots; ++i) folds[i] = i == 1 ? 0 : p.below(ring_rows + 1);
  std::byte* a = p.bytes(slots * stride);
  for (int64_t s = 0; s < slots; ++s) {
    fill(p, a + s * stride + layout.state_offset, state_type, c * dim, 0.3F);
    fill(p, a + s * stride + layout.window_offset, type, 9 * c, 1);
    fill(p, a + s * stride + layout.ring_offset, type, ring_rows * (4 * c + heads), 1);
  }
  std::byte* b = p.copy_bytes(a, slots * stride);
  const MatrixView inputs = p.matrix(type, batch.row_count, 4 * c + heads, 1, align_up(4 * c + heads, 8));
  const MatrixView gate = p.matrix(type, batch.row_count, c);
  const MatrixView y = p.output(type, batch.row_count, c), y_b = p.output(type, batch.row_count, c);
  const auto compare = [&](const std::string& what) {
    for (int64_t s = 0; s < slots; ++s) {
      const auto part = [&](const std::byte* base, int64_t offset, DType t, int64_t n) {
        return ConstMatrixView{base + s * stride + offset, t, 1, n, n};
      };
      p.same(what + " state", part(a, layout.state_offset, state_type, c * dim), part(b, layout.state_offset, state_type, c * dim),
             std::max(bound, bound_of(state_type)));
      p.same(what + " window", part(a, layout.window_offset, type, 9 * c), part(b, layout.window_offset, type, 9 * c), 0);
      p.same(what + " ring", part(a, layout.ring_offset, type, ring_rows * (4 * c + heads)),
             part(b, layout.ring_offset, type, ring_rows * (4 * c + heads)), 0);
    }
  };
  ops::KdaParams cpu{.batch = batch,
                     .inputs = inputs,
                     .gate = gate,
                     .weights = w,
                     .slots = {a, stride},
                     .layout = layout,
                     .fold = {.counts = folds},
                     .y = y};
  ops::KdaParams device = cpu;
  device.slots.base = b;
  device.y = y_b;
  p.run(&ops::OpTable::kda, cpu, device);
  p.same("y", y, y_b, bound);
  compare("rows:");
  auto* ids = p.array<int32_t>(2);
  auto* counts = p.array<int32_t>(2);
  ids[0] = 3, ids[1] = 5, counts[0] = 4, counts[1] = 1;
  ops::KdaFoldParams fold{.slot_ids = ids, .counts = counts, .count = 2, .weights = w, .slots = {a, stride}, .layout = layout};
  ops::KdaFoldParams fold_b = fold;
  fold_b.slots.base = b;
  p.run(&ops::OpTable::kda_fold, fold, fold_b);
  compare("fold:");
}

// Latent rows of random values in all pages; then writes, and attention over random choices.
void check_attention(Pair& p, DType type, DType latent, int64_t heads, int64_t dim, const std::vector<Sequence>& sequences, int32_t pool,
                     int32_t capacity, bool expanded) {
  p.name(fmt::format("attention {} heads of {} {}, rows {}", heads, dim, dtype_name(type), dtype_name(latent)));
  int32_t pages = 0;
  const ops::BatchView batch = batch_of(p, sequences, pages);
  const int64_t m = batch.row_count;
  ops::LatentLayout layout;
  layout.dim = dim;
  layout.page_offset = 256;
  layout.dtype = latent;
  layout.row_bytes = latent == kFP8 ? dim + (dim + 127) / 128 * 4 : dim * dtype_bytes(latent);
  const int64_t stride = align_up(layout.page_offset + 64 * layout.row_bytes, 256);
  std::byte* a = p.bytes(pages * stride);
  for (int64_t row = 0; row < pages * 64; ++row) {
    std::byte* at = a + row / 64 * stride + layout.page_offset + row % 64 * layout.row_bytes;
    fill(p, at, latent, dim, latent == kFP8 ? 60.0F : 1.0F);
    for (int64_t g = 0; latent == kFP8 && g < (dim + 127) / 128; ++g) {
      const float scale = std::ldexp(1.0F, -6 + p.below(3));
      std::memcpy(at + dim + g * 4, &scale, 4);
    }
  }
  std::byte* b = p.copy_bytes(a, pages * stride);
  const MatrixView x = p.matrix(type, m, dim);
  const float* weight = p.floats(dim, 0.2F, 1);
  ops::LatentWriteParams write{.batch = batch, .x = x, .weight = weight, .eps = 1e-5F, .pages = {a, stride}, .layout = layout};
  ops::LatentWriteParams write_b = write;
  write_b.pages.base = b;
  p.run(&ops::OpTable::latent_write, write, write_b);
  const int64_t values = latent == kFP8 ? pages * stride : pages * stride / dtype_bytes(latent);
  if (latent == kFP8)
    p.add(
        "pages",
        static_cast<double>(std::count_if(a, a + values, [&](const std::byte& v) { return v != b[&v - a]; })) / static_cast<double>(values),
        1e-3);  // codes at ties
  else
    p.same("pages", {a, latent, 1, values, values}, {b, latent, 1, values, values}, bound_of(latent));

  ops::Selection selection{p.array<int32_t>(m * capacity), p.array<int32_t>(m), p.array<int32_t>(m), capacity};
  for (int64_t r = 0; r < m; ++r) {
    const int32_t closed = (batch.positions[r] + 1) / pool;
    std::vector<int32_t> all(static_cast<size_t>(closed));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), p.random());
    const int32_t n = std::min(closed, capacity);
    std::sort(all.begin(), all.begin() + n);
    std::copy_n(all.begin(), n, selection.pools + r * capacity);
    selection.counts[r] = n;
    selection.tail_begin[r] = closed * pool;
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const MatrixView q = p.matrix(type, m, heads * dim);
  const MatrixView out = p.output(type, m, heads * dim), out_b = p.output(type, m, heads * dim);
  ops::MlaAttendParams attend{.batch = batch,
                              .q = q,
                              .heads = heads,
                              .scale = scale,
                              .pages = {a, stride},
                              .layout = layout,
                              .selection = selection,
                              .pool = pool,
                              .out = out};
  ops::MlaAttendParams attend_b = attend;
  attend_b.out = out_b;
  p.run(&ops::OpTable::mla_attend, attend, attend_b);
  p.same("attended", out, out_b, type == kF32 ? 2e-5 : 1e-2);
  if (!expanded) return;
  std::vector<ops::WeightView> key, value, key_b, value_b;
  for (int64_t h = 0; h < heads; ++h) {
    const Weight k = p.weight(kF32, 24, dim), v = p.weight(kF32, 20, dim);
    key.push_back(k.cpu), key_b.push_back(k.device), value.push_back(v.cpu), value_b.push_back(v.device);
  }
  const MatrixView q2 = p.matrix(type, m, heads * 24);
  const MatrixView e = p.output(type, m, heads * 20), e_b = p.output(type, m, heads * 20);
  ops::MlaAttendExpandedParams form{.batch = batch,
                                    .q = q2,
                                    .key = key.data(),
                                    .value = value.data(),
                                    .heads = heads,
                                    .scale = 0.2F,
                                    .pages = {a, stride},
                                    .layout = layout,
                                    .selection = selection,
                                    .pool = pool,
                                    .out = e};
  ops::MlaAttendExpandedParams form_b = form;
  form_b.key = key_b.data();
  form_b.value = value_b.data();
  form_b.out = e_b;
  p.run(&ops::OpTable::mla_attend_expanded, form, form_b);
  p.same("expanded", e, e_b, type == kF32 ? 2e-5 : 1e-2);
}

void check_indexer(Pair& p, DType type, DType index, int64_t heads, int64_t dim, const std::vector<Sequence>& sequences, int32_t capacity) {
  p.name(fmt::format("indexer {} heads of {} {}, pools {}", heads, dim, dtype_name(type), dtype_name(index)));
  int32_t pages = 0;
  const ops::BatchView batch = batch_of(p, sequences, pages);
  const int64_t m = batch.row_count;
  ops::IndexerLayout layout;
  layout.dim = dim;
  layout.pool = 4;
  layout.page_offset = 128;
  layout.ring_offset = 64;
  layout.ring_tokens = 12;
  layout.dtype = index;
  layout.ring_dtype = type;
  const int64_t per_page = 64 / layout.pool;
  const int64_t page_bytes = per_page * dim * dtype_bytes(index) + (index == kFP8 ? per_page * 4 : 0);
  const int64_t stride = align_up(layout.page_offset + page_bytes, 256);
  const int64_t slot_stride = align_up(layout.ring_offset + layout.ring_tokens * 2 * dim * dtype_bytes(type), 256);
  std::byte* a = p.bytes(pages * stride);
  std::byte* slots = p.bytes(batch.sequence_count * slot_stride);
  for (int64_t page = 0; page < pages; ++page) {
    std::byte* at = a + page * stride + layout.page_offset;
    fill(p, at, index, per_page * dim, index == kFP8 ? 60.0F : 1.0F);
    for (int64_t i = 0; index == kFP8 && i < per_page; ++i) {
      const float scale = std::ldexp(1.0F, -6 + p.below(2));
      std::memcpy(at + per_page * dim + i * 4, &scale, 4);
    }
  }
  for (int64_t q = 0; q < batch.sequence_count; ++q)
    fill(p, slots + q * slot_stride + layout.ring_offset, type, layout.ring_tokens * 2 * dim, 1);
  std::byte* b = p.copy_bytes(a, pages * stride);
  std::byte* slots_b = p.copy_bytes(slots, batch.sequence_count * slot_stride);
  ops::IndexerKeysParams keys{.batch = batch,
                              .key = p.matrix(type, m, dim),
                              .gamma = p.matrix(type, m, dim),
                              .norm_weight = p.floats(dim, 0.2F, 1),
                              .norm_bias = p.floats(dim, 0.2F),
                              .norm_eps = 1e-6F,
                              .ape = p.floats(layout.pool * dim, 0.5F),
                              .pages = {a, stride},
                              .slots = {slots, slot_stride},
                              .layout = layout};
  ops::IndexerKeysParams keys_b = keys;
  keys_b.pages.base = b;
  keys_b.slots.base = slots_b;
  p.run(&ops::OpTable::indexer_keys, keys, keys_b);
  const int64_t ring = batch.sequence_count * slot_stride / dtype_bytes(type);
  p.same("ring", {slots, type, 1, ring, ring}, {slots_b, type, 1, ring, ring}, bound_of(type));
  if (index == kFP8) {
    int64_t different = 0;
    for (int64_t i = 0; i < pages * stride; ++i) different += a[i] == b[i] ? 0 : 1;
    p.add("pools", static_cast<double>(different) / static_cast<double>(pages * stride), 2e-3);
  } else {
    const int64_t n = pages * stride / dtype_bytes(index);
    p.same("pools", {a, index, 1, n, n}, {b, index, 1, n, n}, bound_of(index));
  }

  const auto selection = [&] { return ops::Selection{p.array<int32_t>(m * capacity), p.array<int32_t>(m), p.array<int32_t>(m), capacity}; };
  ops::IndexerSelectParams select{.batch = batch,
                                  .q = p.matrix(type, m, heads * dim),
                                  .weights = p.matrix(kF32, m, heads),
                                  .heads = heads,
                                  .pages = {a, stride},
                                  .layout = layout,
                                  .selection = selection()};
  ops::IndexerSelectParams select_b = select;
  select_b.selection = selection();
  p.run(&ops::OpTable::indexer_select, select, select_b);
  p.equal("counts", select.selection.counts, select_b.selection.counts, m);
  p.equal("tails", select.selection.tail_begin, select_b.selection.tail_begin, m);
  int64_t different = 0, all = 0;  // pools whose scores differ by less than their rounding may be taken for each other
  for (int64_t r = 0; r < m; ++r) {
    const int32_t* x = select.selection.pools + r * capacity;
    const int32_t* y = select_b.selection.pools + r * capacity;
    const int32_t n = select.selection.counts[r];
    all += n;
    for (int32_t i = 0; i < n; ++i) different += std::binary_search(y, y + n, x[i]) ? 0 : 1;
    p.add("ascending", std::is_sorted(y, y + n) && std::adjacent_find(y, y + n) == y + n ? 0 : 1, 0);
  }
  p.add("pools that the other did not choose", static_cast<double>(different) / static_cast<double>(std::max<int64_t>(all, 1)), 2e-3);
}

}  // namespace

void check_kda(Pair& p) {
  check_recurrence(p, kF32, kF32, 2, 16, 2e-5);
  check_recurrence(p, kBF16, kF32, 3, 24, 4e-3);
  check_recurrence(p, kBF16, kBF16, 1, 40, 4e-3);
}

void check_sparse(Pair& p) {
  const std::vector<Sequence> sequences = {{3, 0}, {5, 70}, {1, 150}, {9, 61}};
  check_attention(p, kF32, kF32, 3, 40, sequences, 4, 6, true);
  check_attention(p, kBF16, kBF16, 2, 72, sequences, 4, 40, true);
  check_attention(p, kBF16, kFP8, 2, 160, sequences, 16, 3, false);
  check_indexer(p, kF32, kF32, 3, 24, sequences, 5);
  check_indexer(p, kBF16, kBF16, 2, 40, sequences, 9);
  check_indexer(p, kBF16, kFP8, 4, 64, sequences, 7);
  check_indexer(p, kF32, kFP8, 3, 48, sequences, 30);
}

void check_sampling(Pair& p) {
  const int64_t n = 700, m = 48;
  p.name("sample");
  const MatrixView logits = p.matrix(kF32, m, n, 3, n + 4);
  for (int64_t c = 0; c < n; c += 3) logits.row<float>(7)[c] = 2.5F;  // ties
  logits.row<float>(8)[5] = std::numeric_limits<float>::quiet_NaN();
  logits.row<float>(9)[5] = std::numeric_limits<float>::infinity();
  auto* rows = p.array<ops::SamplingRow>(m);
  for (int64_t r = 0; r < m; ++r) {
    ops::SamplingRow& row = rows[r] = {};
    row.seed = p.random()();
    row.position = p.below(5000);
    if (r % 4 != 0) row.temperature = std::exp(p.normal(0.7F));
    if (r % 3 == 1) row.top_k = 1 + p.below(60);
    if (r % 5 == 1) row.top_p = 0.3F + 0.01F * static_cast<float>(p.below(69));
    if (r % 7 == 1) row.min_p = 0.001F + 0.01F * static_cast<float>(p.below(30));
    if (r % 2 == 0) row.logprobs = p.below(9);
    if (r % 6 == 5) {
      auto* bias = p.array<ops::LogitBias>(3);
      for (int i = 0; i < 3; ++i) bias[i] = {i * 7 + static_cast<int32_t>(r), p.normal(4)};
      row.bias = bias, row.bias_count = 3;
      auto* seen = p.array<ops::SeenToken>(40);
      for (int i = 0; i < 40; ++i) seen[i] = {i * 5 + 2, i % 2, i % 3};
      row.seen = seen, row.seen_count = 40;
      row.repetition_penalty = 1.3F, row.frequency_penalty = 0.4F, row.presence_penalty = 0.2F;
      auto* banned = p.array<int32_t>(2);
      banned[0] = 3, banned[1] = 690;
      row.banned = banned, row.banned_count = 2;
    }
    if (r % 8 == 3) {
      auto* allowed = p.array<uint32_t>((n + 31) / 32);
      for (int64_t i = 0; i < (n + 31) / 32; ++i) allowed[i] = r == 11 ? 0 : static_cast<uint32_t>(p.random()());
      row.allowed = allowed;
    }
  }
  constexpr int32_t kTop = 8;
  auto *a = p.array<int32_t>(m), *b = p.array<int32_t>(m);
  float *la = p.array<float>(m), *lb = p.array<float>(m);
  auto *ta = p.array<ops::TokenLogprob>(m * kTop), *tb = p.array<ops::TokenLogprob>(m * kTop);
  p.run(&ops::OpTable::sample, {.logits = logits, .rows = rows, .ids = a, .logprobs = la, .top = ta, .top_stride = kTop},
        {.logits = logits, .rows = rows, .ids = b, .logprobs = lb, .top = tb, .top_stride = kTop});
  p.equal("ids", a, b, m);
  for (int64_t i = 0; i < m * kTop; ++i) {
    p.add("most likely", ta[i].token == tb[i].token ? 0 : 1, 0);
    if (ta[i].token >= 0) p.add("their logprobs", std::fabs(static_cast<double>(ta[i].logprob) - static_cast<double>(tb[i].logprob)), 2e-5);
  }
  for (int64_t r = 0; r < m; ++r)
    if (rows[r].logprobs >= 0) p.add("logprob", std::fabs(static_cast<double>(la[r]) - static_cast<double>(lb[r])), 2e-5);
}

// Sizes of the released model, for which kernels of their own exist.
void check_released(Pair& p) {
  check_recurrence(p, kBF16, kF32, 8, 128, 1.5e-2);
  check_recurrence(p, kBF16, kBF16, 8, 128, 1.5e-2);
  const std::vector<Sequence> sequences = {{8, 3000}, {1, 130}, {8, 2200}, {40, 0}};
  check_attention(p, kBF16, kBF16, 64, 512, sequences, 4, 512, false);
  check_attention(p, kBF16, kFP8, 64, 512, sequences, 4, 512, false);
  check_attention(p, kBF16, kBF16, 4, 512, sequences, 4, 512, false);
  check_indexer(p, kBF16, kFP8, 32, 128, sequences, 512);
}

}  // namespace baton::pair
