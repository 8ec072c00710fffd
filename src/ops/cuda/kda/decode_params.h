// What the decode kernels of KDA are launched with: one block works on one head of one sequence. Meanings and shapes are those of
// ops/kda.h.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "ops/batch.h"
#include "ops/cuda/kda/decode_limits.h"

namespace baton::cuda::kda {

struct DecodeParams {
  // With `sequences` null only the fold is done, of slots slot_ids[sequence].
  const ops::SequenceRows* sequences = nullptr;
  const int32_t* slot_ids = nullptr;
  int32_t sequence_count = 0;
  // Ring rows to commit before the rows of the launch; cut to the ring.
  const int32_t* fold_counts = nullptr;  // [sequence_count], or null
  int64_t fold_count_offset = -1;        // where fold_counts is null: of an int32 inside the slot; -1: nothing is folded
  int32_t heads = 0;

  const __nv_bfloat16* inputs = nullptr;  // [m, 4 C + heads]: q^ k^ v^ | a | b
  int64_t input_stride = 0;
  const __nv_bfloat16* gate = nullptr;  // [m, C]
  int64_t gate_stride = 0;
  __nv_bfloat16* y = nullptr;  // [m, C]
  int64_t y_stride = 0;

  const float* conv = nullptr;     // [3 C, 4]
  const float* a_log = nullptr;    // [heads]
  const float* dt_bias = nullptr;  // [C]
  const float* o_norm = nullptr;   // [kDim]
  float norm_eps = 0;
  float lower_bound_log2 = 0;  // of the decay, times log2 e

  std::byte* slots = nullptr;
  int64_t slot_stride = 0;
  int64_t state_offset = 0;
  int64_t window_offset = 0;
  int64_t ring_offset = 0;
  int32_t ring_rows = 0;
  bool state_bf16 = false;       // else fp32
  int32_t prefetch_blocks = -1;  // how many blocks ahead the state is brought to L2; 0: not at all, -1: as measured best
};

}  // namespace baton::cuda::kda
