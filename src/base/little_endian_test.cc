#include "base/little_endian.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace baton {
namespace {

template <class T>
std::vector<uint8_t> bytes_of(T value) {
  std::vector<uint8_t> bytes;
  put_little_endian(value, [&](uint8_t byte) { bytes.push_back(byte); });
  return bytes;
}

TEST(LittleEndian, TheLeastByteComesFirst) {
  EXPECT_EQ(bytes_of(uint32_t{0x01020304}), (std::vector<uint8_t>{4, 3, 2, 1}));
  EXPECT_EQ(bytes_of(int16_t{-2}), (std::vector<uint8_t>{0xFE, 0xFF}));
  EXPECT_EQ(bytes_of(true), std::vector<uint8_t>{1});
}

template <class T>
void goes_and_comes() {
  for (const T value : {std::numeric_limits<T>::min(), T{0}, T{1}, std::numeric_limits<T>::max()})
    EXPECT_EQ(from_little_endian<T>(bytes_of(value).data()), value);
}

TEST(LittleEndian, WhatGoesComesBack) {
  goes_and_comes<uint8_t>();
  goes_and_comes<uint16_t>();
  goes_and_comes<int32_t>();
  goes_and_comes<uint32_t>();
  goes_and_comes<int64_t>();
  goes_and_comes<uint64_t>();
}

}  // namespace
}  // namespace baton
