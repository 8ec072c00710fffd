#include <gtest/gtest.h>

#include "ops/cuda/kda/config.h"

namespace baton::cuda::kda {
namespace {

ops::KdaParams released() {
  ops::KdaParams p;
  p.weights.heads = 64;
  p.weights.dim = 128;
  p.layout.state_dtype = DType::kBF16;
  p.layout.activation_dtype = DType::kBF16;
  p.layout.ring_rows = 8;
  p.slots.stride = 256;
  p.inputs = {nullptr, DType::kBF16, 8, 4 * 8192 + 64, 4 * 8192 + 64};
  p.gate = {nullptr, DType::kBF16, 8, 8192, 8192};
  p.y = {nullptr, DType::kBF16, 8, 8192, 8192};
  return p;
}

TEST(KdaConfig, TakesTheReleasedSizesWithBothStates) {
  ops::KdaParams p = released();
  EXPECT_EQ(unsupported(p), nullptr);
  p.layout.state_dtype = DType::kF32;
  EXPECT_EQ(unsupported(p), nullptr);
}

TEST(KdaConfig, NamesWhatItDoesNotTake) {
  const auto why = [](auto change) {
    ops::KdaParams p = released();
    change(p);
    const char* text = unsupported(p);
    return std::string(text == nullptr ? "" : text);
  };
  EXPECT_NE(why([](auto& p) { p.weights.dim = 64; }).find("128"), std::string::npos);
  EXPECT_NE(why([](auto& p) { p.weights.heads = 12; }).find("heads"), std::string::npos);
  EXPECT_NE(why([](auto& p) { p.layout.activation_dtype = DType::kF32; }).find("bf16"), std::string::npos);
  EXPECT_NE(why([](auto& p) { p.layout.ring_rows = 9; }).find("ring"), std::string::npos);
  EXPECT_NE(why([](auto& p) { p.layout.window_offset = 8; }).find("16 bytes"), std::string::npos);
  EXPECT_NE(why([](auto& p) { p.inputs.stride += 4; }).find("rows"), std::string::npos);
  EXPECT_NE(why([](auto& p) { p.y.dtype = DType::kF32; }).find("rows"), std::string::npos);
}

}  // namespace
}  // namespace baton::cuda::kda
