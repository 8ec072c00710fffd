#include "ops/cuda/mla_sparse/launch.h"

#include <bit>
#include <cstdint>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/mla_sparse/combine.cuh"
#include "ops/cuda/mla_sparse/start.h"

namespace baton::cuda::mla {

cudaError_t attend(const ops::MlaAttendParams& params, const Config& config, void* workspace, bool dependent_launch, cudaStream_t stream) {
  if (params.batch.row_count == 0) return cudaSuccess;
  AttendParams p{};
  p.q = static_cast<const std::byte*>(params.q.data);
  p.out = static_cast<std::byte*>(params.out.data);
  p.q_stride = params.q.stride;
  p.out_stride = params.out.stride;
  p.pages = params.pages.base + params.layout.page_offset;
  p.page_stride = params.pages.stride;
  p.row_sequence = params.batch.row_sequence;
  p.positions = params.batch.positions;
  p.page_tables = params.batch.page_tables;
  p.pools = params.selection.pools;
  p.counts = params.selection.counts;
  p.tail_begin = params.selection.tail_begin;
  p.partial = static_cast<float*>(workspace);
  p.page_table_stride = params.batch.page_table_stride;
  p.pool_capacity = params.selection.pool_capacity;
  p.pool_log2 = std::countr_zero(static_cast<uint32_t>(params.pool));
  p.rows = params.batch.row_count;
  p.heads = static_cast<int32_t>(params.heads);
  p.head_blocks = config.head_blocks;
  p.splits = config.splits;
  p.scale_log2 = params.scale * 1.44269504088896340736F;
  if (config.prefill && (params.layout.dtype != DType::kBF16 || config.splits != 1)) return cudaErrorInvalidValue;
  const auto start = config.prefill ? start_attend_prefill : params.layout.dtype == DType::kF8E4M3 ? start_attend_e4m3 : start_attend_bf16;
  const cudaError_t e = start(p, static_cast<unsigned>(config.items), dependent_launch, stream);
  if (e != cudaSuccess || config.splits == 1) return e;
  const int64_t blocks = config.items / config.splits * (kHeads / kCombineHeads);
  return launch(combine_splits, static_cast<unsigned>(blocks), kCombineThreads, 0, 1, dependent_launch, stream, p);
}

}  // namespace baton::cuda::mla
