#include "ops/cpu/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace baton::cpu {
namespace {

// Every element lies where packed_index() says, everything else is zero, and nothing outside the destination is touched.
void check_packing(DType dtype, int64_t n, int64_t k, int64_t extra_stride, int64_t misalignment) {
  SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " n=" << n << " k=" << k);
  const int64_t element = dtype_bytes(dtype);
  const int64_t stride = k + extra_stride;
  std::mt19937 engine(static_cast<uint32_t>(n * 1000 + k));
  // Exactly as long as the matrix, so that a sanitizer sees reads past its end.
  std::vector<uint8_t> source(static_cast<size_t>(misalignment + ((n - 1) * stride + k) * element));
  for (uint8_t& b : source) b = static_cast<uint8_t>(1 + engine() % 255);
  const uint8_t* host = source.data() + misalignment;
  const auto bytes = static_cast<size_t>(packed_bytes(dtype, n, k));
  std::vector<uint8_t> packed(bytes + 64, 0xA5);
  pack({host, dtype, n, k, stride}, packed.data());

  std::vector<uint8_t> expected(bytes + 64, 0);
  std::fill(expected.end() - 64, expected.end(), uint8_t{0xA5});
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const int64_t at = r / kBlockColumns * block_bytes(dtype, k) + packed_index(dtype, r % kBlockColumns, c) * element;
      std::memcpy(&expected[static_cast<size_t>(at)], host + (r * stride + c) * element, static_cast<size_t>(element));
    }
  }
  EXPECT_EQ(packed, expected);
}

TEST(PackedWeight, PutsEveryElementInItsPlace) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3})
    for (const int64_t n : {1, 4, 15, 16, 17, 24, 48, 100})
      for (const int64_t k : {1, 2, 3, 7, 8, 24, 31, 32, 33, 96, 128, 192, 200}) check_packing(dtype, n, k, 0, 0);
}

TEST(PackedWeight, ReadsSubmatricesAtAnyAddress) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3})
    for (const int64_t misalignment : {1, 2, 7})
      for (const int64_t k : {24, 64, 65}) check_packing(dtype, 33, k, 5, misalignment);
}

TEST(PackedWeight, IndexIsAPermutationOfTheTile) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    std::vector<int> seen(16 * 64);
    for (int64_t n = 0; n < 16; ++n)
      for (int64_t k = 0; k < 64; ++k) ++seen[static_cast<size_t>(packed_index(dtype, n, k))];
    EXPECT_EQ(seen, std::vector<int>(16 * 64, 1));
  }
}

}  // namespace
}  // namespace baton::cpu
