#include "ops/cuda/moe/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ops/cuda/moe/layout.h"

namespace baton::cuda::moe {
namespace {

// One rank of four.
Problem shard(int64_t rows) { return {rows, 8, 288, 72, 4096, 2048}; }

TEST(MoeConfig, ManyRowsAnExpertPutRowsFirst) {
  EXPECT_EQ(configure(shard(8)).variant, Variant::kDecode);
  EXPECT_EQ(configure(shard(256)).variant, Variant::kDecode);
  EXPECT_EQ(configure(shard(1024)).variant, Variant::kMedium);
  EXPECT_EQ(configure(shard(32768)).variant, Variant::kPrefill);
}

TEST(MoeConfig, RefusesSizesThatTheKernelsDoNotCut) {
  EXPECT_TRUE(supported(shard(0)));
  EXPECT_TRUE(supported({1, 8, 288, 288, 4096, 512}));
  EXPECT_FALSE(supported({1, 8, 288, 72, 4096 + 128, 2048}));
  EXPECT_FALSE(supported({1, 8, 288, 72, 8192, 2048}));
  EXPECT_FALSE(supported({1, 8, 288, 72, 4096, 256}));
  EXPECT_FALSE(supported({1, 17, 288, 72, 4096, 2048}));
  EXPECT_FALSE(supported({1, 8, 64, 72, 4096, 2048}));
}

// The worst routing of a batch: every row to the same experts, or spread so that every expert pads.
TEST(MoeConfig, PanelsAndUnitsHoldEveryRouting) {
  for (const int64_t rows : {1, 3, 8, 63, 256, 1000, 20000}) {
    const Problem p = shard(rows);
    for (const Variant v : {Variant::kDecode, Variant::kMedium, Variant::kPrefill}) {
      const Config c = configure(p, v);
      const auto check = [&](int64_t experts_used, int64_t rows_each) {
        const int64_t padded = (rows_each + 7) / 8 * 8;
        EXPECT_LE(experts_used * padded, c.slots);
        EXPECT_LE(experts_used * ((padded + c.tile_rows - 1) / c.tile_rows), c.max_units);
      };
      check(8, rows);  // all rows choose the same eight
      const int64_t entries = rows * 8;
      if (entries >= 72) check(72, entries / 72);
      check(std::min<int64_t>(entries, 72), 1);
      EXPECT_EQ(c.slots % kSlotGroup, 0);
      EXPECT_EQ(c.plan_blocks, std::max<int64_t>((rows + 1023) / 1024, 1));
    }
  }
}

TEST(MoeConfig, WorkspacePartsAreAlignedAndApart) {
  const Problem p = shard(1024);
  const Config c = configure(p);
  const WorkspaceLayout w = workspace_layout(p, c);
  const int64_t starts[] = {w.x, w.x_scale, w.h, w.h_scale, w.y, w.row_slot, w.units, w.control, w.ready, w.block_counts, w.bytes};
  for (size_t i = 0; i + 1 < std::size(starts); ++i) {
    EXPECT_EQ(starts[i] % 256, 0);
    EXPECT_LT(starts[i], starts[i + 1]);
  }
  EXPECT_GE(w.x_scale - w.x, c.slots * 4096);
  EXPECT_GE(w.row_slot - w.y, c.slots * 4096 * 2);
}

TEST(MoeLayout, WeightOffsetsAndRowOrderArePermutations) {
  std::set<int64_t> offsets;
  for (int64_t r = 0; r < 256; ++r)
    for (int64_t c = 0; c < 256; ++c) offsets.insert(weight_offset(2, r, c));
  EXPECT_EQ(offsets.size(), 256U * 256U);
  EXPECT_EQ(*offsets.rbegin(), 256 * 256 - 1);
  std::set<int64_t> rows;
  for (int64_t r = 0; r < 128; ++r) rows.insert(weight_source_row(r));
  EXPECT_EQ(rows.size(), 128U);
  EXPECT_EQ(weight_source_row(16), 16);
  EXPECT_EQ(weight_source_row(24), 17);  // a thread holds the stored rows g and g + 8: neighbours in the checkpoint
}

TEST(MoeLayout, SlotsOfAPanelAreContiguousInEights) {
  EXPECT_EQ(panel_offset(64, 0, 0, 0), 0);
  EXPECT_EQ(panel_offset(64, 0, 1, 1), 128);  // chunk 1 of slot 1 lies first: the swizzle
  EXPECT_EQ(panel_offset(64, 2, 8, 0), (2 * 64 + 8) * 128);
}

}  // namespace
}  // namespace baton::cuda::moe
