#include "ops/cuda/indexer/config.h"

#include <algorithm>

#include "ops/cuda/indexer/params.h"

namespace baton::cuda::indexer {

bool supported(const ops::IndexerSelectParams& p) {
  const auto& l = p.layout;
  return l.dim == kDim && l.pool == kPool && l.dtype == DType::kF8E4M3 && p.heads == kHeads && p.q.dtype == DType::kBF16 &&
         p.weights.dtype == DType::kF32 && p.q.stride % 4 == 0 && l.page_offset % 16 == 0 && p.pages.stride % kDim == 0 &&
         p.selection.pool_capacity >= 1 && p.selection.pool_capacity <= 1024;
}

Config configure(const ops::IndexerSelectParams& p, int multiprocessors) {
  Config c;
  c.groups = (p.batch.row_count + kGroupRows - 1) / kGroupRows;
  const int64_t keys = int64_t{p.batch.page_table_stride} * kPageKeys;
  c.score_stride = (keys + kTileKeys - 1) / kTileKeys * kTileKeys;
  c.workspace_bytes = int64_t{p.batch.row_count} * c.score_stride * 4;
  const auto tiles = static_cast<int32_t>(c.score_stride / kTileKeys);
  // A split of fewer than eight tiles spends its time on its beginning.
  c.splits = std::clamp(multiprocessors / std::max(c.groups, 1), 1, std::max(tiles / 8, 1));
  return c;
}

}  // namespace baton::cuda::indexer
