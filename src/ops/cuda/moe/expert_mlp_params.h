// What the expert MLP kernel reads: plain values and pointers, passed by value.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace baton::cuda::moe {

// A block of rows of one expert, times all column blocks.
struct Unit {
  int32_t expert;
  int32_t slot;  // first slot, a multiple of 8
  int32_t rows;  // padded to 8
  int32_t unused;
};

struct MlpParams {
  const uint8_t* gate;
  const uint8_t* up;
  const uint8_t* down;
  int64_t gate_stride, up_stride, down_stride;
  const float* gate_scale;
  const float* up_scale;
  const float* down_scale;
  int64_t gate_scale_stride, up_scale_stride, down_scale_stride;  // floats
  const uint8_t* x;
  const float* x_scale;
  uint8_t* h;
  float* h_scale;
  uint8_t* y;
  const Unit* units;
  uint32_t* control;  // [0] number of units, [1] tiles handed out beyond the first of every block
  uint32_t* ready;    // [units] parts of gate-up tiles stored
  int64_t slots;
  int32_t width_blocks;  // width / 128
  int32_t inner_blocks;  // inner / 128
  float limit;
  int32_t phases;  // 3: both; 1: gate-up alone, 2: down alone (benchmarks)
};

// One per instantiation, in inst/.
cudaError_t start_mlp_decode(const MlpParams& params, bool dependent, cudaStream_t stream);
cudaError_t start_mlp_medium(const MlpParams& params, bool dependent, cudaStream_t stream);
cudaError_t start_mlp_prefill(const MlpParams& params, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::moe
