// KDA on the CPU. One work item is one head of one sequence: convolution, gates, recurrence and gated norm without a barrier between them.
#include <cmath>
#include <cstring>

#include "ops/cpu/backend.h"
#include "ops/cpu/kda_chunk.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::KdaFoldParams;
using ops::KdaParams;
using ops::KdaSlotLayout;
using ops::KdaWeights;

constexpr int64_t kBlockTokens = 64;
constexpr int64_t kTaps = 4;

// Scratch of one thread. raw holds the inputs of a block preceded by the three rows before it.
struct HeadScratch {
  float* raw;  // [3 + kBlockTokens, 3, dim]
  float* q;    // [kBlockTokens, dim], then k, v, decay alike
  float* k;
  float* v;
  float* decay;
  float* o;
  float* beta;        // [kBlockTokens]
  float* row;         // [dim]
  float* state;       // [dim, dim]
  float* chunk;       // chunked form only
  std::byte* window;  // [3, 3, dim] of the widest type

  static int64_t bytes(int64_t dim) {
    Arena plan;
    HeadScratch(plan, dim);
    return plan.peak();
  }
  HeadScratch(Arena& arena, int64_t dim)
      : raw(arena.array<float>((3 + kBlockTokens) * 3 * dim)), q(arena.array<float>(kBlockTokens * dim)),
        k(arena.array<float>(kBlockTokens * dim)), v(arena.array<float>(kBlockTokens * dim)), decay(arena.array<float>(kBlockTokens * dim)),
        o(arena.array<float>(kBlockTokens * dim)), beta(arena.array<float>(kBlockTokens)), row(arena.array<float>(dim)),
        state(arena.array<float>(dim * dim)), chunk(arena.array<float>(kda_chunk_scratch_floats(kBlockTokens, dim))),
        window(arena.array<std::byte>(9 * dim * 4)) {}
};

// The rows that one head consumes: columns of q^ k^ v^ | a | b, from a launch or from the replay ring.
struct HeadTask {
  const RowKernels& kernels;
  const KdaWeights& w;
  const KdaSlotLayout& layout;
  std::byte* slot;
  const std::byte* inputs;  // first row
  int64_t input_stride;     // bytes between rows
  int64_t tokens;
  int64_t head;
  bool chunked;

  int64_t width() const { return w.heads * w.dim; }
  int64_t element() const { return dtype_bytes(layout.activation_dtype); }
  std::byte* window_row(int64_t i) const { return slot + layout.window_offset + i * 3 * width() * element(); }
  const std::byte* input(int64_t token, int64_t column) const { return inputs + token * input_stride + column * element(); }

  // q^, k^, v^ of a token; -3 ... -1 are the window's.
  void load_raw(int64_t token, float* dst) const {
    for (int64_t part = 0; part < 3; ++part) {
      const int64_t column = part * width() + head * w.dim;
      const std::byte* src = token < 0 ? window_row(token + 3) + column * element() : input(token, column);
      kernels.widen(src, layout.activation_dtype, dst + part * w.dim, w.dim);
    }
  }

  void prepare(int64_t first, int64_t count, HeadScratch& s) const {
    const int64_t dim = w.dim;
    for (int64_t i = 0; i < count + 3; ++i) load_raw(first + i - 3, s.raw + i * 3 * dim);
    const float rate = std::exp(w.a_log[head]);
    for (int64_t t = 0; t < count; ++t) {
      float* const out[3] = {s.q + t * dim, s.k + t * dim, s.v + t * dim};
      for (int64_t part = 0; part < 3; ++part) {
        const float* x = s.raw + t * 3 * dim + part * dim;
        const float* taps = w.conv + (part * width() + head * dim) * kTaps;
        kernels.kda_conv(x, x + 3 * dim, x + 6 * dim, x + 9 * dim, taps, out[part], dim);
      }
      kernels.l2_normalise(out[0], 1.0F / std::sqrt(static_cast<float>(dim)), dim);
      kernels.l2_normalise(out[1], 1.0F, dim);
      kernels.widen(input(first + t, 3 * width() + head * dim), layout.activation_dtype, s.row, dim);
      kernels.kda_decay(s.row, w.dt_bias + head * dim, rate, w.lower_bound, s.decay + t * dim, dim);
      kernels.widen(input(first + t, 4 * width() + head), layout.activation_dtype, s.beta + t, 1);
      kernels.sigmoid(s.beta + t, 1);
    }
  }

  // state: [dim, dim] floats that the tokens advance. output(t, o) is called per token in order.
  template <class Output>
  void run(float* state, HeadScratch& s, const Output& output) const {
    const int64_t dim = w.dim;
    for (int64_t first = 0; first < tokens; first += kBlockTokens) {
      const int64_t count = std::min(kBlockTokens, tokens - first);
      prepare(first, count, s);
      if (chunked)
        kda_chunk(state, dim, count, s.q, s.k, s.v, s.decay, s.beta, s.o, s.chunk);
      else
        kernels.kda_recur(state, dim, 0, dim, count, s.q, s.k, s.v, s.decay, dim, s.beta, 1, s.o, dim);
      for (int64_t t = 0; t < count; ++t) output(first + t, s.o + t * dim);
    }
  }

  std::byte* stored_state() const { return slot + layout.state_offset + head * w.dim * w.dim * dtype_bytes(layout.state_dtype); }

  // Runs the tokens and commits state and window.
  template <class Output>
  void advance(HeadScratch& s, const Output& output) const {
    const int64_t n = w.dim * w.dim;
    if (layout.state_dtype == DType::kF32) {
      run(reinterpret_cast<float*>(stored_state()), s, output);
    } else {
      kernels.widen(stored_state(), layout.state_dtype, s.state, n);
      run(s.state, s, output);
      kernels.narrow(s.state, stored_state(), layout.state_dtype, n);
    }
    const int64_t bytes = w.dim * element();
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t token = tokens - 3 + i;
      for (int64_t part = 0; part < 3; ++part) {
        const int64_t column = part * width() + head * w.dim;
        const std::byte* src = token < 0 ? window_row(token + 3) + column * element() : input(token, column);
        std::memcpy(s.window + (i * 3 + part) * bytes, src, static_cast<size_t>(bytes));
      }
    }
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t part = 0; part < 3; ++part)
        std::memcpy(window_row(i) + (part * width() + head * w.dim) * element(), s.window + (i * 3 + part) * bytes,
                    static_cast<size_t>(bytes));
  }

  // Runs the tokens on a copy of the state and records their inputs.
  template <class Output>
  void verify(HeadScratch& s, const Output& output) const {
    BATON_CHECK_MSG(tokens <= layout.ring_rows, "{} rows to verify, the replay ring holds {}", tokens, layout.ring_rows);
    kernels.widen(stored_state(), layout.state_dtype, s.state, w.dim * w.dim);
    run(s.state, s, output);
    const int64_t row_bytes = (4 * width() + w.heads) * element();
    for (int64_t t = 0; t < tokens; ++t) {
      std::byte* ring = slot + layout.ring_offset + t * row_bytes;
      for (int64_t part = 0; part < 4; ++part) {
        const int64_t column = part * width() + head * w.dim;
        std::memcpy(ring + column * element(), input(t, column), static_cast<size_t>(w.dim * element()));
      }
      const int64_t column = 4 * width() + head;
      std::memcpy(ring + column * element(), input(t, column), static_cast<size_t>(element()));
    }
  }
};

// The first `count` ring rows of a slot, committed.
void fold_ring(const RowKernels& kernels, const ops::KdaWeights& w, const ops::KdaSlotLayout& layout, std::byte* slot, int32_t count,
               int64_t head, HeadScratch& s) {
  if (count == 0) return;
  BATON_CHECK_MSG(count > 0 && count <= layout.ring_rows, "{} rows to fold, the replay ring holds {}", count, layout.ring_rows);
  const int64_t row_bytes = (4 * w.heads * w.dim + w.heads) * dtype_bytes(layout.activation_dtype);
  const HeadTask task{kernels, w, layout, slot, slot + layout.ring_offset, row_bytes, count, head, false};
  task.advance(s, [](int64_t, const float*) {});
}

int32_t fold_count(const ops::KdaFoldSource& fold, int64_t sequence, const std::byte* slot) {
  if (fold.counts != nullptr) return fold.counts[sequence];
  int32_t count = 0;
  if (fold.slot_offset >= 0) std::memcpy(&count, slot + fold.slot_offset, sizeof(count));
  return count;
}

int64_t scratch_bytes(const ops::Executor& executor, int64_t dim) { return executor.pool().size() * HeadScratch::bytes(dim); }

void run_kda(ops::Context& ctx, const KdaParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t dim = p.weights.dim;
  const int64_t heads = p.weights.heads;
  BATON_CHECK(p.inputs.cols == 4 * heads * dim + heads && p.inputs.dtype == p.layout.activation_dtype);
  const int64_t mark = ctx.workspace->mark();
  std::byte* scratch = ctx.workspace->array<std::byte>(scratch_bytes(*ctx.executor, dim));
  const int64_t items = p.batch.sequence_count * heads;
  const int64_t grain = p.batch.row_count * heads < 8 ? items : 1;
  ctx.executor->pool().parallel_for(items, grain, [&](int64_t begin, int64_t end, int thread) {
    Arena arena(scratch + thread * HeadScratch::bytes(dim), HeadScratch::bytes(dim));
    HeadScratch s(arena, dim);
    for (int64_t item = begin; item < end; ++item) {
      const ops::SequenceRows& sequence = p.batch.sequences[item / heads];
      const int64_t head = item % heads;
      std::byte* slot = p.slots.slot(sequence.slot);
      fold_ring(kernels, p.weights, p.layout, slot, fold_count(p.fold, item / heads, slot), head, s);
      if (sequence.row_count == 0) continue;
      const HeadTask task{kernels,
                          p.weights,
                          p.layout,
                          slot,
                          p.inputs.row_bytes(sequence.row_begin),
                          p.inputs.stride * dtype_bytes(p.inputs.dtype),
                          sequence.row_count,
                          head,
                          p.chunked && sequence.verify == 0};
      const auto output = [&](int64_t t, float* o) {
        const int64_t row = sequence.row_begin + t;
        const float* z = float_row(kernels, p.gate, row, head * dim, dim, s.row);
        kernels.gated_norm(o, p.weights.o_norm, z, p.weights.norm_eps, o, dim);
        write_row(kernels, o, p.y, row, head * dim, dim);
      };
      if (sequence.verify != 0)
        task.verify(s, output);
      else
        task.advance(s, output);
    }
  });
  ctx.workspace->release(mark);
}

void run_kda_fold(ops::Context& ctx, const KdaFoldParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t dim = p.weights.dim;
  const int64_t heads = p.weights.heads;
  const int64_t mark = ctx.workspace->mark();
  std::byte* scratch = ctx.workspace->array<std::byte>(scratch_bytes(*ctx.executor, dim));
  ctx.executor->pool().parallel_for(p.count * heads, 1, [&](int64_t begin, int64_t end, int thread) {
    Arena arena(scratch + thread * HeadScratch::bytes(dim), HeadScratch::bytes(dim));
    HeadScratch s(arena, dim);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t i = item / heads;
      fold_ring(kernels, p.weights, p.layout, p.slots.slot(p.slot_ids[i]), p.counts[i], item % heads, s);
    }
  });
  ctx.workspace->release(mark);
}

}  // namespace

void register_kda(ops::OpTable& table) {
  table.kda = {run_kda,
               [](const KdaParams& p) {
                 return is_float_type(p.inputs.dtype) && is_float_type(p.gate.dtype) && is_float_type(p.y.dtype) &&
                        is_float_type(p.layout.state_dtype);
               },
               [](const ops::Executor& e, const KdaParams& p) { return scratch_bytes(e, p.weights.dim) + kBufferAlignment; }};
  table.kda_fold = {run_kda_fold, [](const KdaFoldParams& p) { return is_float_type(p.layout.state_dtype); },
                    [](const ops::Executor& e, const KdaFoldParams& p) { return scratch_bytes(e, p.weights.dim) + kBufferAlignment; }};
}

}  // namespace baton::cpu
