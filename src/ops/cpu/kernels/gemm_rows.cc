#include "ops/cpu/kernels/gemm_rows.h"

#include <immintrin.h>

#include "ops/cpu/kernels/gemm_kernels.h"
#include "ops/cpu/kernels/vector_math.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {
namespace {

#if BATON_VECTOR_FLOATS == 16

// The instruction rounds to nearest even like to_bf16(), except that magnitudes below 2^-126 become zero.
inline void narrow(const float* src, uint16_t* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    _mm512_storeu_si512(dst + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(src + i + 16), _mm512_loadu_ps(src + i))));
  for (; i < n; i += 16) {
    const auto mask = static_cast<__mmask16>(n - i >= 16 ? 0xFFFFU : (1U << (n - i)) - 1U);
    _mm256_mask_storeu_epi16(dst + i, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, src + i))));
  }
}

#else

inline void narrow(const float* src, uint16_t* dst, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const auto u = std::bit_cast<uint32_t>(src[i]);
    const uint32_t rounded = (u + 0x7FFFU + ((u >> 16) & 1U)) >> 16;
    const uint32_t nan = (u >> 16) | 0x40U;
    dst[i] = static_cast<uint16_t>((u & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
  }
}

#endif

// to_float(to_e4m3(x)) without branches.
inline float round_e4m3(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t a = u & 0x7FFFFFFFU;
  const uint32_t normal = (a + 0x7FFFFU + ((a >> 20) & 1U)) & 0xFFF00000U;
  const uint32_t most = std::bit_cast<uint32_t>(kE4m3Max);
  const uint32_t bounded = normal > most ? most : normal;
  const float subnormal = (std::bit_cast<float>(a) + 0x1p14F) - 0x1p14F;  // below 2^-6: multiples of 2^-9
  uint32_t magnitude = a < 0x3C800000U ? std::bit_cast<uint32_t>(subnormal) : bounded;
  magnitude = a > 0x7F800000U ? 0x7FC00000U : magnitude;
  return std::bit_cast<float>(magnitude | (u & 0x80000000U));
}

inline float load_as_float(const float* p, int64_t i) { return p[i]; }
inline float load_as_float(const uint16_t* p, int64_t i) { return std::bit_cast<float>(static_cast<uint32_t>(p[i]) << 16); }

// dst may be src.
template <class T>
void accumulate(const T* src, float weight, float* dst, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dst[i] = __builtin_fmaf(weight, load_as_float(src, i), dst[i]);
}

}  // namespace

void quantise_row(const float* x, int64_t k, void* dst, DType dst_dtype, float* scale) {
  for (int64_t begin = 0; begin < k; begin += kGroupDepth) {
    const int64_t n = k - begin < kGroupDepth ? k - begin : kGroupDepth;
    uint32_t top = 0;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t a = std::bit_cast<uint32_t>(x[begin + i]) & 0x7FFFFFFFU;  // magnitudes order like their bits
      top = a > top ? a : top;
    }
    const float s = top == 0 ? 1.0F : std::bit_cast<float>(top) / kE4m3Max;
    scale[begin / kGroupDepth] = s;
    if (dst_dtype == DType::kF32) {
      float* out = static_cast<float*>(dst) + begin;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) out[i] = round_e4m3(x[begin + i] / s);
    } else {
      uint16_t* out = static_cast<uint16_t*>(dst) + begin;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(round_e4m3(x[begin + i] / s)) >> 16);
    }
  }
}

void store_rows(const float* src, int64_t src_stride, int64_t m, int64_t n, void* dst, int64_t dst_stride, DType dst_dtype) {
  auto* to = static_cast<std::byte*>(dst);
  for (int64_t r = 0; r < m; ++r, src += src_stride, to += dst_stride) {
    if (dst_dtype == DType::kF32) {
      auto* out = reinterpret_cast<float*>(to);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) out[i] = src[i];
    } else {
      narrow(src, reinterpret_cast<uint16_t*>(to), n);
    }
  }
}

void swiglu_rows(float* gate, const float* up, int64_t stride, int64_t m, int64_t n, float limit) {
  for (int64_t r = 0; r < m; ++r, gate += stride, up += stride) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float g = gate[i] > limit ? limit : gate[i];
      float u = up[i] > limit ? limit : up[i];
      u = u < -limit ? -limit : u;
      gate[i] = silu(g) * u;
    }
  }
}

void weighted_sum(const void* base, DType base_dtype, const void* const* rows, DType dtype, const float* weight, int64_t count, int64_t n,
                  void* out, DType out_dtype) {
  constexpr int64_t kChunk = 512;
  float sum[kChunk];
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t size = n - begin < kChunk ? n - begin : kChunk;
    for (int64_t i = 0; i < size; ++i) sum[i] = 0;
    if (base != nullptr && base_dtype == DType::kF32)
      for (int64_t i = 0; i < size; ++i) sum[i] = static_cast<const float*>(base)[begin + i];
    else if (base != nullptr)
      for (int64_t i = 0; i < size; ++i) sum[i] = load_as_float(static_cast<const uint16_t*>(base), begin + i);
    for (int64_t j = 0; j < count; ++j) {
      if (dtype == DType::kF32)
        accumulate(static_cast<const float*>(rows[j]) + begin, weight[j], sum, size);
      else
        accumulate(static_cast<const uint16_t*>(rows[j]) + begin, weight[j], sum, size);
    }
    auto* to = static_cast<std::byte*>(out) + begin * dtype_bytes(out_dtype);
    store_rows(sum, 0, 1, size, to, 0, out_dtype);
  }
}

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
