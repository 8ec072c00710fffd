#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "ops/cuda/gemm/config.h"

namespace baton::cuda::gemm {
namespace {

TEST(GemmConfig, LargeTilesWhereTheyFillTheDevice) {
  EXPECT_EQ(configure(64, 1 << 20, false, 132), Variant::kFew);
  EXPECT_EQ(configure(256, 4096, false, 132), Variant::kSome);
  EXPECT_EQ(configure(1024, 24640, false, 132), Variant::kMany);
  EXPECT_EQ(configure(65, 128, true, 132), Variant::kMany) << "FP8 has two shapes";
}

TEST(GemmConfig, EveryTileOnceAndNeighboursShareRows) {
  for (const auto& [rows, columns] : {std::pair{1, 7}, {16, 3}, {17, 5}, {40, 2}}) {
    std::set<std::tuple<int, int, int>> met;
    for (int i = 0; i < 3 * rows * columns; ++i) {
      const Place p = place_of(i, rows, columns);
      EXPECT_TRUE(p.member >= 0 && p.member < 3 && p.row >= 0 && p.row < rows && p.column >= 0 && p.column < columns) << i;
      met.insert({p.member, p.row, p.column});
    }
    EXPECT_EQ(met.size(), static_cast<size_t>(3 * rows * columns));
  }
  EXPECT_EQ(place_of(15, 40, 8).row, 15);
  EXPECT_EQ(place_of(16, 40, 8).row, 0);
  EXPECT_EQ(place_of(16, 40, 8).column, 1);
}

}  // namespace
}  // namespace baton::cuda::gemm
