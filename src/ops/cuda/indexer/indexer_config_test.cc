#include "ops/cuda/indexer/config.h"

#include <gtest/gtest.h>

namespace baton::cuda::indexer {
namespace {

ops::IndexerSelectParams verify(int32_t rows, int32_t tokens) {
  ops::IndexerSelectParams p;
  p.batch.row_count = rows;
  p.batch.page_table_stride = tokens / 64;
  p.q = {nullptr, DType::kBF16, rows, 32 * 128, 32 * 128};
  p.weights = {nullptr, DType::kF32, rows, 32, 32};
  p.heads = 32;
  p.pages.stride = 394240;
  p.layout.dim = 128;
  p.layout.pool = 4;
  p.layout.page_offset = 33792;
  p.layout.dtype = DType::kF8E4M3;
  p.selection.pool_capacity = 512;
  return p;
}

TEST(IndexerConfig, FewGroupsSplitTheirKeysOverTheDevice) {
  EXPECT_EQ(configure(verify(256, 65536), 132).splits, 4);
  EXPECT_EQ(configure(verify(8, 65536), 132).splits, 32);  // eight tiles each
  EXPECT_EQ(configure(verify(8, 512), 132).splits, 1);
  EXPECT_EQ(configure(verify(8192, 65536), 132).splits, 1);
  EXPECT_EQ(configure(verify(0, 65536), 132).workspace_bytes, 0);
}

TEST(IndexerConfig, ScoresOfARowAreWholeTiles) {
  const Config c = configure(verify(3, 65536 + 64), 132);
  EXPECT_EQ(c.score_stride, 16384 + 64);
  EXPECT_EQ(c.workspace_bytes, 3 * c.score_stride * 4);
}

TEST(IndexerConfig, RefusesWhatTheKernelsDoNotCut) {
  EXPECT_TRUE(supported(verify(256, 65536)));
  auto p = verify(8, 4096);
  p.layout.pool = 2;
  EXPECT_FALSE(supported(p));
  p = verify(8, 4096);
  p.layout.dtype = DType::kBF16;
  EXPECT_FALSE(supported(p));
  p = verify(8, 4096);
  p.heads = 16;
  EXPECT_FALSE(supported(p));
}

}  // namespace
}  // namespace baton::cuda::indexer
