// Ops of a block drafter.
#include "backend/pair.h"
#include "ops/block_draft.h"
#include "ops/window_attention.h"

namespace baton::pair {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

double bound_of(DType out) { return out == kF32 ? 2e-5 : 4e-3; }

void check_window(Pair& p, DType type, int64_t heads, int64_t kv_heads, int64_t dim, int32_t window) {
  p.name(fmt::format("window {} {} of {} heads of {}, {} tokens", dtype_name(type), heads, kv_heads, dim, window));
  constexpr int64_t kBlock = 5;
  const int64_t width = kv_heads * dim;
  ops::WindowLayout layout{.kv_heads = kv_heads, .dim = dim, .slot_offset = 64, .window = window, .dtype = type};
  const int64_t stride = align_up(layout.slot_offset + layout.bytes(), 256);
  const int32_t positions[] = {0, 3, 40};
  constexpr int32_t kSequences = 3;
  ops::BatchView batch;
  auto* sequences = p.array<ops::SequenceRows>(kSequences);
  auto* owner = p.array<int32_t>(kSequences * kBlock);
  auto* position = p.array<int32_t>(kSequences * kBlock);
  for (int32_t q = 0; q < kSequences; ++q) {
    sequences[q] = {static_cast<int32_t>(q * kBlock), kBlock, positions[q], q, 0};
    for (int32_t i = 0; i < kBlock; ++i) {
      owner[q * kBlock + i] = q;
      position[q * kBlock + i] = positions[q] + i;
    }
  }
  batch.sequences = sequences;
  batch.sequence_count = kSequences;
  batch.row_count = kSequences * kBlock;
  batch.row_sequence = owner;
  batch.positions = position;
  std::byte* a = p.bytes(kSequences * stride);
  const int64_t values = kSequences * stride / dtype_bytes(type);
  for (int64_t i = 0; i < values; ++i) Pair::put({a, type, 1, values, values}, 0, i, p.normal());
  std::byte* b = p.copy_bytes(a, kSequences * stride);
  auto* counts = p.array<int32_t>(kSequences);
  counts[0] = 5, counts[1] = 0, counts[2] = 3;
  const int64_t m = batch.row_count;
  ops::WindowWriteParams write{.batch = batch,
                               .counts = counts,
                               .key = p.matrix(type, m, width),
                               .value = p.matrix(type, m, width),
                               .norm = p.floats(dim, 0.2F, 1),
                               .eps = 1e-5F,
                               .rotary = {1e4F},
                               .slots = {a, stride},
                               .layout = layout};
  ops::WindowWriteParams write_b = write;
  write_b.slots.base = b;
  p.run(&ops::OpTable::window_write, write, write_b);
  p.same("ring", {a, type, 1, values, values}, {b, type, 1, values, values}, bound_of(type));
  const MatrixView out = p.output(type, m, heads * dim), out_b = p.output(type, m, heads * dim);
  ops::WindowAttendParams attend{.batch = batch,
                                 .block = kBlock,
                                 .q = p.matrix(type, m, heads * dim),
                                 .key = write.key,
                                 .value = write.value,
                                 .heads = heads,
                                 .q_norm = write.norm,
                                 .k_norm = p.floats(dim, 0.2F, 1),
                                 .eps = 1e-5F,
                                 .rotary = {1e4F},
                                 .slots = {a, stride},
                                 .layout = layout,
                                 .out = out};
  ops::WindowAttendParams attend_b = attend;
  attend_b.out = out_b;
  p.run(&ops::OpTable::window_attend, attend, attend_b);
  p.same("attended", out, out_b, bound_of(type));
}

void check_conv(Pair& p, DType type) {
  p.name("block_conv " + std::string(dtype_name(type)));
  const MatrixView x = p.matrix(type, 12, 60), dynamic = p.matrix(type, 12, 10);
  const float* base = p.floats(120);
  const MatrixView y = p.output(type, 12, 60), y_b = p.output(type, 12, 60);
  p.run(&ops::OpTable::block_conv, {.x = x, .base = base, .dynamic = dynamic, .groups = 5, .block = 4, .y = y},
        {.x = x, .base = base, .dynamic = dynamic, .groups = 5, .block = 4, .y = y_b});
  p.same("y", y, y_b, bound_of(type));
}

void check_path(Pair& p, DType type, int64_t top, int64_t vocabulary) {
  p.name(fmt::format("draft_path {} of {}", top, vocabulary));
  const int64_t blocks = 5, steps = 4, rank = 24, rows = blocks * steps;
  const MatrixView logits = p.matrix(kF32, rows, vocabulary, 3);
  for (int64_t c = 0; c < vocabulary; c += 2) logits.row<float>(6)[c] = 1;  // ties
  logits.row<float>(9)[3] = std::numeric_limits<float>::infinity();
  const MatrixView hidden = p.matrix(type, rows, rank), before = p.matrix(type, vocabulary, rank), after = p.matrix(type, vocabulary, rank);
  auto* anchors = p.array<int32_t>(blocks);
  auto* how = p.array<ops::DraftPathRow>(blocks);
  for (int64_t i = 0; i < blocks; ++i) {
    anchors[i] = p.below(static_cast<int>(vocabulary));
    how[i] = {i % 2 == 0 ? 0.0F : 0.8F, p.random()(), p.below(100), static_cast<uint32_t>(i / 3)};
  }
  int32_t* ids[2];
  int32_t* candidates[2];
  float* probabilities[2];
  ops::DraftPathParams params[2];
  for (int i = 0; i < 2; ++i) {
    ids[i] = p.array<int32_t>(rows);
    candidates[i] = p.array<int32_t>(rows * top);
    probabilities[i] = p.array<float>(rows * top);
    params[i] = {.logits = logits,
                 .hidden = hidden,
                 .predecessor = before,
                 .successor = after,
                 .anchors = anchors,
                 .rows = how,
                 .steps = steps,
                 .top = top,
                 .ids = ids[i],
                 .candidates = candidates[i],
                 .probabilities = probabilities[i]};
  }
  p.run(&ops::OpTable::draft_path, params[0], params[1]);
  p.equal("ids", ids[0], ids[1], rows);
  p.equal("candidates", candidates[0], candidates[1], rows * top);
  p.same("probabilities", {probabilities[0], kF32, rows, top, top}, {probabilities[1], kF32, rows, top, top}, 1e-5);
}

}  // namespace

void check_drafter(Pair& p) {
  check_window(p, kF32, 4, 2, 16, 8);
  check_window(p, kBF16, 6, 1, 40, 64);
  check_conv(p, kF32);
  check_conv(p, kBF16);
  check_path(p, kF32, 6, 200);
  check_path(p, kBF16, 40, 33);
}

}  // namespace baton::pair
