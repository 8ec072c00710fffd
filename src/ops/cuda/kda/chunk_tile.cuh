// What both kernels of the chunked form share: which rows a chunk has, and tiles of 16 x 16 in swizzled rows.
#pragma once

#include "ops/cuda/device/barrier.cuh"
#include "ops/cuda/device/load_matrix.cuh"
#include "ops/cuda/kda/chunk_params.h"

namespace baton::cuda::kda {

struct ChunkWork {
  int32_t sequence = 0;
  int32_t head = 0;
  int32_t slot = -1;
  int32_t row = 0;     // of the batch: the chunk's first
  int32_t before = 0;  // rows of this launch before it in its sequence
  int32_t count = 0;   // rows, 0: nothing to do
  int32_t chunk = 0;   // of its sequence in this launch
};

__device__ __forceinline__ int sequence_chunks(const ops::SequenceRows& s) {
  if (s.verify != 0 || s.slot < 0 || s.row_count <= kMaxTokens) return 0;
  return (s.position % kChunk + s.row_count + kChunk - 1) / kChunk;
}

// Chunks lie at absolute multiples of 64.
__device__ __forceinline__ ChunkWork chunk_work(const ops::SequenceRows& s, int sequence, int chunk) {
  ChunkWork w;
  const int lead = s.position % kChunk;
  w.sequence = sequence;
  w.slot = s.slot;
  w.chunk = chunk;
  w.before = max(kChunk * chunk - lead, 0);
  w.row = s.row_begin + w.before;
  w.count = min(s.row_count, kChunk * (chunk + 1) - lead) - w.before;
  return w;
}

// Byte of channel `channel` of row t in swizzled rows of kBytes.
template <int kBytes>
__device__ __forceinline__ int swizzled(int t, int channel) {
  return t * kBytes + ((channel / 8) ^ (t % 8)) * 16 + channel % 8 * 2;
}
// Tile of 16 rows x 16 columns at (row, column), as first operand (rows on m): registers a0 ... a3.
template <int kBytes>
__device__ __forceinline__ uint32_t tile_a(const void* base, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return shared_address(base) + swizzled<kBytes>(row + lane % 16, column + lane / 16 * 8);
}
// As second operand with rows on n: b0, b1 of rows 0 ... 7, then of rows 8 ... 15.
template <int kBytes>
__device__ __forceinline__ uint32_t tile_b(const void* base, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return shared_address(base) + swizzled<kBytes>(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8);
}
// As second operand with rows on k, read transposed: b0, b1 of columns 0 ... 7, then of columns 8 ... 15.
template <int kBytes>
__device__ __forceinline__ uint32_t tile_k(const void* base, int row, int column) {
  return tile_a<kBytes>(base, row, column);
}

}  // namespace baton::cuda::kda
