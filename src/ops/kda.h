// KDA: gated linear attention with a per-channel decay, a width-4 causal convolution before and a gated norm after it.
//
// Per token, with q^, k^, v^ the projections, a the decay logits, b the update logits, z the output-gate logits, C = heads * dim:
//   q, k, v = silu(conv4(q^)), silu(conv4(k^)), silu(conv4(v^))          tap 3 multiplies the current token; zeros before the start
//   q = dim^-1/2 q / sqrt(sum q^2 + 1e-6),  k = k / sqrt(sum k^2 + 1e-6)   per head
//   g = lower_bound * sigmoid(exp(a_log_h) * (a + dt_bias))              per channel, natural logarithm of the decay
//   S <- diag(exp g) S;  d = sigmoid(b) (v - S^T k);  S <- S + k d^T;  o = S^T q
//   y = o / sqrt(mean o^2 + norm_eps) * o_norm * sigmoid(z)
// All in float; S is [heads, key, value] per sequence. The first three q^|k^|v^ rows before the launch come from the slot's window.
#pragma once

#include "ops/batch.h"
#include "tensor/view.h"

namespace baton::ops {

struct KdaWeights {
  const float* conv = nullptr;     // [3 * C, 4], order q, k, v
  const float* a_log = nullptr;    // [heads]
  const float* dt_bias = nullptr;  // [C]
  const float* o_norm = nullptr;   // [dim]
  int64_t heads = 0;
  int64_t dim = 0;
  float norm_eps = 0;
  float lower_bound = 0;
};

// Where one KDA layer lives inside a slot. Offsets in bytes, multiples of 64.
struct KdaSlotLayout {
  int64_t state_offset = 0;   // [heads, dim, dim] of state_dtype
  int64_t window_offset = 0;  // [3, 3 * C] of activation_dtype, oldest first
  int64_t ring_offset = 0;    // [ring_rows, 3 * C + C + heads] of activation_dtype: q^ k^ v^ | a | b of verified rows
  int32_t ring_rows = 0;
  DType state_dtype = DType::kF32;  // kF32, or kBF16: rounded once when a launch commits
  DType activation_dtype = DType::kF32;
};

// How many ring rows of each sequence are committed before its rows, as kda_fold would: what a cycle accepted of the last one's rows. Where
// it is known on the device only, a slot holds the count, and one captured graph serves every acceptance.
struct KdaFoldSource {
  const int32_t* counts = nullptr;  // [batch.sequence_count], 0 ... ring_rows; or null:
  int64_t slot_offset = -1;         // bytes, of an int32 in the slot, a multiple of 4; -1: nothing is folded
};

// Rows of sequences with verify = 0 advance state and window. Rows of sequences with verify = 1 read both, leave both as they are, and
// record their inputs in ring rows 0 ... row_count - 1. With kF32 state, every row's result is bitwise that of one-token launches.
struct KdaParams {
  BatchView batch{};
  ConstMatrixView inputs{};  // [m, 3 * C + C + heads]: q^ k^ v^ | a | b, activation_dtype
  ConstMatrixView gate{};    // [m, C] output-gate logits z, activation_dtype
  KdaWeights weights{};
  SlotPoolView slots{};
  KdaSlotLayout layout{};
  KdaFoldSource fold{};  // the same bits as kda_fold and then this op without it
  bool chunked = false;  // chunked form for rows that advance: the same mathematics within 1e-4, not the same bits
  MatrixView y{};        // [m, C]
};

// ReplaySSM: runs the first counts[i] ring rows of slot ids[i] through the very same convolution, norm and update,
// and commits state and window.
struct KdaFoldParams {
  const int32_t* slot_ids = nullptr;  // [count], distinct
  const int32_t* counts = nullptr;    // [count], 0 ... ring_rows
  int32_t count = 0;
  KdaWeights weights{};
  SlotPoolView slots{};
  KdaSlotLayout layout{};
};

}  // namespace baton::ops
