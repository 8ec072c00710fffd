// What a block drafter needs beside attention: a convolution inside the block, and the path through each position's candidates.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace baton::ops {

// Two taps with weights that depend on the row:
//   y_t[c] = (base[0, c] + dynamic_t[0, g]) x_t[c] + (base[1, c] + dynamic_t[1, g]) x_{t-1}[c],   g = c / (d / groups)
// Blocks are `block` consecutive rows; before the first row of a block lies zero.
struct BlockConvParams {
  ConstMatrixView x{};          // [m, d], m a multiple of block
  const float* base = nullptr;  // [2, d]
  ConstMatrixView dynamic{};    // [m, 2 * groups]: tap-major
  int64_t groups = 0;           // divides d
  int64_t block = 0;
  MatrixView y{};  // [m, d], not x
};

// How a block draws its drafts.
struct DraftPathRow {
  float temperature = 0;  // 0: the candidate with the largest score, ties to the more likely one
  uint64_t seed = 0;
  int32_t position = 0;  // that the first draft will take
  // Of the noise: 0 is that of `sample`, so that drafts agree more often with a target that draws with the same seed; any other one tells
  // nothing about the target's draws, as residual resampling needs it.
  uint32_t stream = 0;
};

// Walks through the candidates of a block's positions. Position i of a block has the `top` tokens with the largest logits (all, if the
// vocabulary has fewer), and after its predecessor a - the anchor at i = 0, then the draft before - candidate b scores
//   logit_i(b) + sum_r predecessor[a, r] hidden_i[r] successor[b, r]
// With a temperature the draft is drawn from softmax(scores / temperature) over the candidates: Gumbel-max with noise keyed by (seed,
// position, token). Logits that are not finite draft token 0.
struct DraftPathParams {
  ConstMatrixView logits{};            // [blocks * steps, vocabulary] kF32
  ConstMatrixView hidden{};            // [blocks * steps, rank] kF32 or kBF16
  ConstMatrixView predecessor{};       // [>= vocabulary, rank] kF32 or kBF16, row-major
  ConstMatrixView successor{};         // likewise
  const int32_t* anchors = nullptr;    // [blocks]
  const DraftPathRow* rows = nullptr;  // [blocks]; null: temperature 0 for all
  int64_t steps = 0;
  int64_t top = 0;
  int32_t* ids = nullptr;          // [blocks, steps] out
  int32_t* candidates = nullptr;   // [blocks * steps, top] out, -1 beyond the vocabulary; may be null
  float* probabilities = nullptr;  // likewise: of each candidate to be drawn; at temperature 0 of the draft 1
};

}  // namespace baton::ops
