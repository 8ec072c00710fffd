// Elements of any storage type, read and written as floats. Conversions are whole-number arithmetic: the bits of tensor/number.h.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "tensor/view.h"

namespace baton::cuda::plain {

__device__ __forceinline__ float from_bf16(uint32_t bits) { return __uint_as_float(bits << 16); }
__device__ __forceinline__ uint16_t to_bf16_bits(float x) {
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((u >> 16) | 0x40U);
  return static_cast<uint16_t>((u + 0x7FFFU + ((u >> 16) & 1U)) >> 16);
}
__device__ __forceinline__ float round_bf16(float x) { return from_bf16(to_bf16_bits(x)); }

__device__ __forceinline__ float from_e4m3(uint32_t code) {
  const uint32_t sign = (code & 0x80U) << 24;
  const uint32_t exponent = (code >> 3) & 0xFU;
  const uint32_t mantissa = code & 0x7U;
  if (exponent == 15 && mantissa == 7) return __uint_as_float(sign | 0x7FC00000U);
  if (exponent == 0) return __uint_as_float(sign | __float_as_uint(static_cast<float>(mantissa) * 0x1p-9F));
  return __uint_as_float(sign | ((exponent + 120U) << 23) | (mantissa << 20));
}
__device__ __forceinline__ uint8_t to_e4m3_bits(float x) {
  const uint32_t u = __float_as_uint(x);
  const uint32_t sign = (u >> 24) & 0x80U;
  const uint32_t a = u & 0x7FFFFFFFU;
  if (a > 0x7F800000U) return static_cast<uint8_t>(sign | 0x7FU);
  if (a >= 0x43E80000U) return static_cast<uint8_t>(sign | 0x7EU);  // 464 and more
  if (a < 0x3C800000U)                                              // below 2^-6: multiples of 2^-9
    return static_cast<uint8_t>(sign | (__float_as_uint(__uint_as_float(a) + 0x1p14F) - 0x46800000U));
  const uint32_t code = ((a + 0x7FFFFU + ((a >> 20) & 1U)) >> 20) - (120U << 3);
  return static_cast<uint8_t>(sign | (code > 0x7EU ? 0x7EU : code));
}

// Scale of e4m3 cache rows: amax / 448 rounded up to a power of two, amax at least 1e-4. By the bits, so that it is exact.
__device__ __forceinline__ float power_of_two_scale(float amax) {
  const uint32_t u = __float_as_uint((amax > 1e-4F ? amax : 1e-4F) / 448.0F);
  return __uint_as_float((u & 0x7FFFFFU) == 0 ? u : (u & 0x7F800000U) + 0x800000U);
}

__device__ __forceinline__ float load(const std::byte* p, DType type, int64_t i) {
  if (type == DType::kF32) return reinterpret_cast<const float*>(p)[i];
  if (type == DType::kBF16) return from_bf16(reinterpret_cast<const uint16_t*>(p)[i]);
  return from_e4m3(reinterpret_cast<const uint8_t*>(p)[i]);
}
__device__ __forceinline__ void store(std::byte* p, DType type, int64_t i, float x) {
  if (type == DType::kF32) {
    reinterpret_cast<float*>(p)[i] = x;
  } else if (type == DType::kBF16) {
    reinterpret_cast<uint16_t*>(p)[i] = to_bf16_bits(x);
  } else {
    reinterpret_cast<uint8_t*>(p)[i] = to_e4m3_bits(x);
  }
}
__device__ __forceinline__ float rounded(float x, DType type) { return type == DType::kBF16 ? round_bf16(x) : x; }

// Views as kernels take them.
struct ConstRows {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // bytes
  DType type = DType::kF32;
  __device__ __forceinline__ const std::byte* row(int64_t r) const { return data + r * stride; }
  __device__ __forceinline__ float at(int64_t r, int64_t c) const { return load(row(r), type, c); }
};
struct Rows {
  std::byte* data = nullptr;
  int64_t stride = 0;
  DType type = DType::kF32;
  __device__ __forceinline__ std::byte* row(int64_t r) const { return data + r * stride; }
  __device__ __forceinline__ float at(int64_t r, int64_t c) const { return load(row(r), type, c); }
  __device__ __forceinline__ void put(int64_t r, int64_t c, float x) const { store(row(r), type, c, x); }
};
inline ConstRows rows_of(const ConstMatrixView& v) {
  return {static_cast<const std::byte*>(v.data), v.stride * dtype_bytes(v.dtype), v.dtype};
}
inline Rows rows_of(const MatrixView& v) { return {static_cast<std::byte*>(v.data), v.stride * dtype_bytes(v.dtype), v.dtype}; }

// Sixteen neighbouring elements from `first` on; those from `end` on are zero.
__device__ __forceinline__ void load16(const std::byte* row, DType type, int64_t first, int64_t end, float (&out)[16]) {
  const int64_t element = type == DType::kF32 ? 4 : type == DType::kBF16 ? 2 : 1;
  const std::byte* p = row + first * element;
  if (first + 16 > end || (reinterpret_cast<uintptr_t>(p) & 15U) != 0) {
    for (int i = 0; i < 16; ++i) out[i] = first + i < end ? load(row, type, first + i) : 0.0F;
    return;
  }
  const auto* v = reinterpret_cast<const uint4*>(p);
  if (type == DType::kF32) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 w = v[i];
      out[4 * i] = __uint_as_float(w.x), out[4 * i + 1] = __uint_as_float(w.y);
      out[4 * i + 2] = __uint_as_float(w.z), out[4 * i + 3] = __uint_as_float(w.w);
    }
  } else if (type == DType::kBF16) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 w = v[i];
      const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        out[8 * i + 2 * j] = from_bf16(words[j] & 0xFFFFU);
        out[8 * i + 2 * j + 1] = from_bf16(words[j] >> 16);
      }
    }
  } else {
    const uint4 w = v[0];
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int j = 0; j < 16; ++j) out[j] = from_e4m3(words[j / 4] >> (8 * (j % 4)) & 0xFFU);
  }
}

}  // namespace baton::cuda::plain
