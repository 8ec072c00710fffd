#include "ops/cuda/mla_sparse/config.h"

#include <gtest/gtest.h>

#include "ops/cuda/mla_sparse/params.h"

namespace baton::cuda::mla {
namespace {

constexpr int kMultiprocessors = 132;

ops::MlaAttendParams verify(int32_t rows, int64_t heads = 64) {
  ops::MlaAttendParams p;
  p.batch.row_count = rows;
  p.heads = heads;
  p.pool = 4;
  p.selection.pool_capacity = 512;
  p.layout = {kDim, 0, 528, DType::kF8E4M3};
  p.pages.stride = 394240;
  p.q = {nullptr, DType::kBF16, rows, heads * kDim, heads * kDim};
  p.out = {nullptr, DType::kBF16, rows, heads * kDim, heads * kDim};
  return p;
}

TEST(MlaConfig, ManyRowsAreNotSplit) {
  EXPECT_EQ(configure(verify(256), kMultiprocessors, false).splits, 1);
  EXPECT_EQ(configure(verify(256), kMultiprocessors, false).workspace_bytes, 0);
  EXPECT_EQ(configure(verify(8192), kMultiprocessors, false).splits, 1);
}

TEST(MlaConfig, FewRowsFillTheDeviceAtMostOnceOver) {
  for (const int32_t rows : {1, 2, 8, 16, 32, 64}) {
    const Config c = configure(verify(rows), kMultiprocessors, false);
    EXPECT_GT(c.splits, 1) << rows;
    EXPECT_LE(c.items, kMultiprocessors) << rows;
    EXPECT_EQ(c.items, int64_t{rows} * c.splits);
    EXPECT_EQ(c.workspace_bytes, c.items * kPartialFloats * 4);
  }
  EXPECT_EQ(configure(verify(8), kMultiprocessors, false).splits, 9);  // 17 tiles: at most two each, and 16 splits would leave it so
}

TEST(MlaConfig, OneSplitWhereBitsMayNotDependOnTheBatch) {
  for (const int32_t rows : {1, 8, 64}) EXPECT_EQ(configure(verify(rows), kMultiprocessors, true).splits, 1);
}

TEST(MlaConfig, HeadsComeInBlocks) {
  EXPECT_EQ(configure(verify(3, 1), 1).head_blocks, 1);
  EXPECT_EQ(configure(verify(3, 64), 1).head_blocks, 1);
  EXPECT_EQ(configure(verify(3, 65), 1).head_blocks, 2);
  EXPECT_EQ(configure(verify(3, 65), 2).items, 12);
}

TEST(MlaConfig, RefusesWhatTheKernelsDoNotCut) {
  EXPECT_TRUE(supported(verify(0)));
  EXPECT_TRUE(supported(verify(256)));
  auto p = verify(8);
  p.layout = {kDim, 528, 1024, DType::kBF16};
  EXPECT_TRUE(supported(p));
  p.layout.page_offset = 8;
  EXPECT_FALSE(supported(p));
  p = verify(8);
  p.layout.dim = 256;
  EXPECT_FALSE(supported(p));
  p = verify(8);
  p.q.dtype = DType::kF32;
  EXPECT_FALSE(supported(p));
  p = verify(8);
  p.pool = 3;
  EXPECT_FALSE(supported(p));
}

}  // namespace
}  // namespace baton::cuda::mla
