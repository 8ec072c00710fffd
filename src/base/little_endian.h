// Whole numbers as bytes, the least significant first: so they stand in what goes between processes, whatever the machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace baton {

// Hands the bytes of `value` to `put`, one after the other.
template <class T, class Put>
requires std::is_integral_v<T>
void put_little_endian(T value, Put&& put) {
  for (size_t i = 0; i < sizeof(T); ++i) put(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i) & 0xFFU));
}

// From the sizeof(T) bytes at `bytes`, of any type of one byte.
template <class T, class Byte>
requires std::is_integral_v<T> &&(sizeof(Byte) == 1) T from_little_endian(const Byte* bytes) {
  uint64_t bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i) bits |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return static_cast<T>(bits);
}

}  // namespace baton
