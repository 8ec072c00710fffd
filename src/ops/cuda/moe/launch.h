// The expert path of one rank: plan (count, scan, sort), quantise and permute, expert MLP (gate-up, SwiGLU, quantise, down), combine.
//
// All launches are asynchronous, allocate nothing and read every count on the device: one captured graph serves every routing. The
// workspace belongs to one call chain plan -> quantise -> mlp -> combine at a time. The chain is called in this order with nothing left
// out: with dependent launches each kernel reads, before it waits, what was written two kernels earlier (x, ids, weights and shared before
// plan; the plan before mlp).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/moe/config.h"

namespace baton::cuda::moe {

// Weights of the local experts in packed blocks (layout.h); strides in bytes and floats.
struct ExpertWeights {
  const uint8_t* gate = nullptr;  // [experts_local] of [inner, width], rows permuted
  const uint8_t* up = nullptr;
  const uint8_t* down = nullptr;  // [experts_local] of [width, inner]
  int64_t gate_stride = 0;
  int64_t up_stride = 0;
  int64_t down_stride = 0;
  const float* gate_scale = nullptr;  // [experts_local][inner / 128][width / 128]
  const float* up_scale = nullptr;
  const float* down_scale = nullptr;  // [experts_local][width / 128][inner / 128]
  int64_t gate_scale_stride = 0;      // 0: one expert's scales behind the other's; otherwise a multiple of 4
  int64_t up_scale_stride = 0;
  int64_t down_scale_stride = 0;
};

struct ExpertPath {
  Problem problem;
  Config config;
  int32_t first_expert = 0;        // global id of local expert 0
  const void* x = nullptr;         // bf16 [rows, width]
  const int32_t* ids = nullptr;    // [rows, choices] global expert ids; ids of other ranks are skipped
  const float* weights = nullptr;  // [rows, choices]
  ExpertWeights experts;
  float limit = 0;               // clamp of SwiGLU
  const void* shared = nullptr;  // bf16 [rows, width] added by combine, or null
  void* out = nullptr;           // bf16 [rows, width]
  void* workspace = nullptr;     // workspace_layout(...).bytes, aligned to 256
  bool dependent_launch = true;  // programmatic dependent launch between the four kernels
  int32_t phases = 3;            // of mlp(): 1 gate-up, 2 down; benchmarks time them apart
};

cudaError_t plan(const ExpertPath& path, cudaStream_t stream);
cudaError_t quantise(const ExpertPath& path, cudaStream_t stream);
cudaError_t mlp(const ExpertPath& path, cudaStream_t stream);
cudaError_t combine(const ExpertPath& path, cudaStream_t stream);
// All four in order.
cudaError_t run(const ExpertPath& path, cudaStream_t stream);

// Row-major [n, k] e4m3 on the device to packed blocks; permute_rows for gate and up.
cudaError_t pack_weight(void* packed, const void* row_major, int64_t n, int64_t k, bool permute_rows, cudaStream_t stream);

// ids and weights of the experts with the largest sigmoid(x router^T) + bias; ties to the lower id. Scores are written where not null.
struct Route {
  int64_t rows = 0;
  int64_t width = 0;             // multiple of 256
  int32_t experts = 0;           // multiple of 32, <= 512
  int32_t choices = 0;           // <= 16
  const void* x = nullptr;       // bf16 [rows, width]
  const void* router = nullptr;  // bf16 [experts, width]
  const float* bias = nullptr;   // [experts]
  bool renormalise = true;
  float scaling = 1;
  float* scores = nullptr;   // [rows, experts] or null
  int32_t* ids = nullptr;    // [rows, choices]
  float* weights = nullptr;  // [rows, choices]
  bool dependent_launch = true;
};
cudaError_t route(const Route& r, cudaStream_t stream);

}  // namespace baton::cuda::moe
