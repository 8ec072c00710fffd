#include "ops/cuda/mla_sparse/config.h"

#include "ops/cuda/mla_sparse/params.h"

namespace baton::cuda::mla {
namespace {

constexpr int kMaxSplits = 16;

int64_t most_tiles(const ops::MlaAttendParams& p) {
  return (int64_t{p.selection.pool_capacity} * p.pool + p.pool - 1 + kTileTokens - 1) / kTileTokens;
}

// Tiles that the busiest multiprocessor works through, counting a block's beginning and end, and the second kernel.
double cost(int64_t rows, int64_t tiles, int splits, int multiprocessors) {
  constexpr double kBlock = 1.5;
  constexpr double kSecondKernel = 2;
  const int64_t waves = (rows * splits + multiprocessors - 1) / multiprocessors;
  const int64_t share = (tiles + splits - 1) / splits;
  return static_cast<double>(waves) * (static_cast<double>(share) + kBlock) + (splits > 1 ? kSecondKernel : 0);
}

}  // namespace

bool supported(const ops::MlaAttendParams& p) {
  const bool fp8 = p.layout.dtype == DType::kF8E4M3 && p.layout.row_bytes == kDim + kDim / 128 * 4;
  const bool bf16 = p.layout.dtype == DType::kBF16 && p.layout.row_bytes == kDim * 2;
  const auto aligned = [](int64_t bytes) { return bytes % 16 == 0; };  // of bulk copies
  return (fp8 || bf16) && p.layout.dim == kDim && p.q.dtype == DType::kBF16 && p.out.dtype == DType::kBF16 && p.heads >= 1 && p.pool >= 1 &&
         ops::kPageTokens % p.pool == 0 && aligned(p.layout.page_offset) && aligned(p.pages.stride) && aligned(p.q.stride * 2) &&
         aligned(p.out.stride * 2) && int64_t{p.batch.row_count} * p.heads < (int64_t{1} << 30);
}

Config configure(const ops::MlaAttendParams& p, int splits) {
  Config c;
  c.head_blocks = static_cast<int32_t>((p.heads + kHeads - 1) / kHeads);
  c.splits = splits;
  c.items = int64_t{p.batch.row_count} * c.head_blocks * splits;
  c.workspace_bytes = splits > 1 ? c.items * kPartialFloats * 4 : 0;
  return c;
}

Config configure(const ops::MlaAttendParams& p, int multiprocessors, bool one_split) {
  const int64_t rows = int64_t{p.batch.row_count} * ((p.heads + kHeads - 1) / kHeads);
  const int64_t tiles = most_tiles(p);
  int best = 1;
  if (!one_split)
    for (int splits = 2; splits <= kMaxSplits && splits <= tiles; ++splits)
      if (cost(rows, tiles, splits, multiprocessors) < cost(rows, tiles, best, multiprocessors)) best = splits;
  return configure(p, best);
}

}  // namespace baton::cuda::mla
