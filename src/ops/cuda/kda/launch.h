// KDA on the device. All launches are asynchronous, allocate nothing and read counts and slots on the device: one captured graph serves
// every acceptance.
//
// With dependent launch a kernel reads sequences, slot ids, fold counts, slots (state, window, ring) and weights before it waits for its
// predecessor: they must have been written two kernels earlier or more. Inputs and gate rows may be the predecessor's output.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/kda/chunk_params.h"

namespace baton::cuda::kda {

// Rows of sequences with at most 8 rows: fold, then verify or advance, in one pass over the state. With FP32 state every row's result has
// the bits of one-token launches, in a fold as well. Sequences with more rows are left alone. Verified rows are recorded in ring rows 0 ...
// after the fold has read them. Counts are the caller's to reset. With `sequences` null this is the fold alone: materialise.
cudaError_t decode(const DecodeParams& params, bool dependent, cudaStream_t stream);

// The chunked form, for rows that advance in sequences of more than 8 rows; other sequences are left alone. Chunks lie at absolute
// multiples
// of 64 positions. Two kernels run slab by slab of slab_chunks chunks of every sequence: the workspace (aligned to 256) holds a slab,
// results do
// not depend on it, and few slabs are fastest.
struct ChunkForm {
  DecodeParams base;
  int64_t row_count = 0;            // of the longest sequence, or more
  int32_t first_lead = kChunk - 1;  // largest position % 64 of a sequence's first row
  int32_t slab_chunks = kSlabChunks;
  void* workspace = nullptr;
  int32_t kernels = 3;  // 1 the first, 2 the second: benchmarks time them apart
};
int64_t chunk_workspace_bytes(int64_t heads, int64_t sequences, int32_t slab_chunks);
cudaError_t chunk(const ChunkForm& form, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::kda
