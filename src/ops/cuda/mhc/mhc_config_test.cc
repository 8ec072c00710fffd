#include "ops/cuda/mhc/config.h"

#include <gtest/gtest.h>

namespace baton::cuda::mhc {
namespace {

ops::MhcMixParams site(int64_t rows, int64_t streams, int64_t width) {
  ops::MhcMixParams p;
  p.streams = {nullptr, DType::kBF16, rows, streams * width, streams * width};
  p.x = {nullptr, DType::kBF16, rows, width, width};
  p.stream_count = streams;
  p.fn = {nullptr, nullptr, DType::kBF16, (2 + streams) * streams, streams * width};
  p.sinkhorn_iterations = 20;
  return p;
}

TEST(MhcConfig, TakesTheModelAndRefusesOtherShapes) {
  EXPECT_TRUE(supported(site(256, 4, 4096)));
  EXPECT_TRUE(supported(site(0, 4, 4096)));
  EXPECT_FALSE(supported(site(256, 2, 4096)));
  EXPECT_FALSE(supported(site(256, 4, 2048)));
}

TEST(MhcConfig, RefusesWhatCannotBeReadInWholeVectors) {
  auto p = site(8, 4, 4096);
  p.streams.stride += 4;
  EXPECT_FALSE(supported(p));
  p = site(8, 4, 4096);
  p.x.dtype = DType::kF32;
  EXPECT_FALSE(supported(p));
  p = site(8, 4, 4096);
  p.sinkhorn_iterations = 0;
  EXPECT_FALSE(supported(p));
}

}  // namespace
}  // namespace baton::cuda::mhc
