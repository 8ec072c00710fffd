#include "ops/cuda/kda/op.h"

#include <algorithm>

#include "ops/cuda/kda/config.h"
#include "ops/cuda/kda/launch.h"

namespace baton::cuda::kda {
namespace {

constexpr float kLog2e = 1.4426950408889634F;

DecodeParams common(const ops::KdaWeights& w, const ops::SlotPoolView& slots, const ops::KdaSlotLayout& layout) {
  DecodeParams d;
  d.heads = static_cast<int32_t>(w.heads);
  d.conv = w.conv;
  d.a_log = w.a_log;
  d.dt_bias = w.dt_bias;
  d.o_norm = w.o_norm;
  d.norm_eps = w.norm_eps;
  d.lower_bound_log2 = w.lower_bound * kLog2e;
  d.slots = slots.base;
  d.slot_stride = slots.stride;
  d.state_offset = layout.state_offset;
  d.window_offset = layout.window_offset;
  d.ring_offset = layout.ring_offset;
  d.ring_rows = layout.ring_rows;
  d.state_bf16 = layout.state_dtype == DType::kBF16;
  return d;
}

// No more chunks than the rows can have.
int32_t slab_of(const ops::KdaParams& params) { return std::min(kSlabChunks, params.batch.row_count / kChunk + 2); }

DecodeParams rows_of(const ops::KdaParams& params) {
  DecodeParams d = common(params.weights, params.slots, params.layout);
  d.sequences = params.batch.sequences;
  d.sequence_count = params.batch.sequence_count;
  d.fold_counts = params.fold.counts;
  d.fold_count_offset = params.fold.slot_offset;
  d.inputs = static_cast<const __nv_bfloat16*>(params.inputs.data);
  d.input_stride = params.inputs.stride;
  d.gate = static_cast<const __nv_bfloat16*>(params.gate.data);
  d.gate_stride = params.gate.stride;
  d.y = static_cast<__nv_bfloat16*>(params.y.data);
  d.y_stride = params.y.stride;
  return d;
}

}  // namespace

int64_t workspace_bytes(const ops::KdaParams& params) {
  if (params.batch.row_count <= kMaxTokens) return 0;
  return chunk_workspace_bytes(params.weights.heads, params.batch.sequence_count, slab_of(params));
}

cudaError_t run_short(const ops::KdaParams& params, bool dependent, cudaStream_t stream) {
  if (unsupported(params) != nullptr) return cudaErrorInvalidValue;
  return decode(rows_of(params), dependent, stream);
}

cudaError_t run(const ops::KdaParams& params, void* workspace, bool dependent, cudaStream_t stream) {
  if (unsupported(params) != nullptr) return cudaErrorInvalidValue;
  const DecodeParams d = rows_of(params);
  const cudaError_t e = decode(d, dependent, stream);
  if (e != cudaSuccess || params.batch.row_count <= kMaxTokens) return e;
  ChunkForm form;
  form.base = d;
  form.row_count = params.batch.row_count;
  form.slab_chunks = slab_of(params);
  form.workspace = workspace;
  return chunk(form, dependent, stream);
}

cudaError_t run(const ops::KdaFoldParams& params, bool dependent, cudaStream_t stream) {
  if (unsupported(params) != nullptr) return cudaErrorInvalidValue;
  DecodeParams d = common(params.weights, params.slots, params.layout);
  d.slot_ids = params.slot_ids;
  d.sequence_count = params.count;
  d.fold_counts = params.counts;
  return decode(d, dependent, stream);
}

}  // namespace baton::cuda::kda
