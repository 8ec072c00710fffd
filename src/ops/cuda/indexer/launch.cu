#include "ops/cuda/indexer/launch.h"

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/indexer/score.cuh"
#include "ops/cuda/indexer/select.cuh"

namespace baton::cuda::indexer {

cudaError_t select(const ops::IndexerSelectParams& params, const Config& config, void* workspace, bool dependent_launch,
                   cudaStream_t stream) {
  if (params.batch.row_count == 0) return cudaSuccess;
  SelectParams p{};
  p.q = static_cast<const std::byte*>(params.q.data);
  p.weights = static_cast<const float*>(params.weights.data);
  p.q_stride = params.q.stride;
  p.weight_stride = params.weights.stride;
  p.pages = params.pages.base + params.layout.page_offset;
  p.page_stride = params.pages.stride;
  p.row_sequence = params.batch.row_sequence;
  p.positions = params.batch.positions;
  p.page_tables = params.batch.page_tables;
  p.scores = static_cast<float*>(workspace);
  p.pools = params.selection.pools;
  p.counts = params.selection.counts;
  p.tail_begin = params.selection.tail_begin;
  p.score_stride = config.score_stride;
  p.page_table_stride = params.batch.page_table_stride;
  p.capacity = params.selection.pool_capacity;
  p.rows = params.batch.row_count;
  p.splits = config.splits;
  // All pages are one matrix of 128-byte rows.
  CUtensorMap map;
  if (!make_tensor_map(&map, p.pages, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, uint64_t{1} << 31, kDim, kDim, kPageKeys, kDim))
    return cudaErrorInvalidValue;
  static const cudaError_t prepared = allow_shared(score_rows, sizeof(ScoreShared));
  if (prepared != cudaSuccess) return prepared;
  const cudaError_t e = launch(score_rows, static_cast<unsigned>(config.groups * config.splits), kScoreThreads, sizeof(ScoreShared), 1,
                               dependent_launch, stream, p, map);
  if (e != cudaSuccess) return e;
  const auto start = config.score_stride <= 16 * kSelectThreads   ? select_rows<16>
                     : config.score_stride <= 32 * kSelectThreads ? select_rows<32>
                                                                  : select_rows<0>;
  return launch(start, static_cast<unsigned>(p.rows), kSelectThreads, sizeof(SelectShared), 1, dependent_launch, stream, p);
}

}  // namespace baton::cuda::indexer
