#include "ops/cuda/kda/launch.h"

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/kda/start.h"

namespace baton::cuda::kda {

cudaError_t decode(const DecodeParams& params, bool dependent, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(params.sequence_count * params.heads);
  DecodeParams p = params;
  if (p.prefetch_blocks < 0) p.prefetch_blocks = multiprocessors();
  return p.state_bf16 ? start_decode_bf16(p, blocks, dependent, stream) : start_decode_fp32(p, blocks, dependent, stream);
}

int64_t chunk_workspace_bytes(int64_t heads, int64_t sequences, int32_t slab_chunks) {
  return heads * sequences * (slab_chunks * static_cast<int64_t>(sizeof(ChunkRecord)) + int64_t{kDim} * kDim * 4);
}

cudaError_t chunk(const ChunkForm& form, bool dependent, cudaStream_t stream) {
  ChunkParams c;
  c.base = form.base;
  c.slab_chunks = form.slab_chunks;
  const int64_t heads = form.base.heads * int64_t{form.base.sequence_count};
  c.records = static_cast<ChunkRecord*>(form.workspace);
  c.carry = reinterpret_cast<float*>(c.records + heads * form.slab_chunks);
  const auto chunks = static_cast<int32_t>((form.row_count + form.first_lead + kChunk - 1) / kChunk);
  for (c.first_chunk = 0; c.first_chunk < chunks; c.first_chunk += form.slab_chunks) {
    const int64_t units = heads * (chunks - c.first_chunk < form.slab_chunks ? chunks - c.first_chunk : form.slab_chunks);
    cudaError_t e = cudaSuccess;
    if ((form.kernels & 1) != 0) e = start_chunk_prepare(c, static_cast<unsigned>(units), dependent, stream);
    if (e == cudaSuccess && (form.kernels & 2) != 0) e = start_chunk_scan(c, static_cast<unsigned>(2 * heads), dependent, stream);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

}  // namespace baton::cuda::kda
