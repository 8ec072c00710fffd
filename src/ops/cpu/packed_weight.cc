#include "ops/cpu/packed_weight.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace baton::cpu {
namespace {

// All three types are transposed as 32-bit words, 8 x 8 at a time: a float, a pair of bf16, or two pairs of e4m3.
constexpr int64_t kWords = 8;

// Rows of eight words, `stride` bytes apart, to columns: out[i] holds word i of every row.
inline void transpose(const std::byte* src, int64_t stride, __m256i out[8]) {
  __m256 r[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(src + i * stride));
  __m256 t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm256_castps_si256(_mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    out[i + 4] = _mm256_castps_si256(_mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

// Words are independent for kF32 and kBF16. For e4m3 a word holds two pairs of one n; every 16 bytes become first pairs, then second pairs.
inline __m256i order(DType dtype, __m256i words) {
  if (dtype != DType::kF8E4M3) return words;
  return _mm256_shuffle_epi8(words, _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                                     0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
}

// Eight words of 16 rows, `stride` bytes apart, to eight lines of 64 bytes.
inline void pack_words(DType dtype, const std::byte* src, int64_t stride, std::byte* dst) {
  for (int half = 0; half < 2; ++half) {
    __m256i out[8];
    transpose(src + half * 8 * stride, stride, out);
    for (int i = 0; i < 8; ++i) _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i * 64 + half * 32), order(dtype, out[i]));
  }
}

// Rows and bytes that may end early: what is missing reads as zero.
void pack_edge(DType dtype, const std::byte* src, int64_t stride, int64_t rows, int64_t bytes, std::byte* dst, int64_t lines) {
  std::byte copy[kBlockColumns * kWords * 4] = {};
  for (int64_t r = 0; r < rows; ++r) std::memcpy(copy + r * kWords * 4, src + r * stride, static_cast<size_t>(bytes));
  std::byte packed[kWords * 64];
  pack_words(dtype, copy, kWords * 4, packed);
  std::memcpy(dst, packed, static_cast<size_t>(lines * 64));
}

}  // namespace

void pack(ConstMatrixView host, void* destination) {
  BATON_CHECK(host.dtype == DType::kF32 || host.dtype == DType::kBF16 || host.dtype == DType::kF8E4M3);
  const int64_t element = dtype_bytes(host.dtype);
  const int64_t row_bytes = host.cols * element;
  const int64_t stride = host.stride * element;
  const int64_t lines = block_bytes(host.dtype, host.cols) / 64;  // of 16 words, one line per word of a row
  for (int64_t block = 0; block < block_count(host.rows); ++block) {
    const int64_t rows = std::min(kBlockColumns, host.rows - block * kBlockColumns);
    const std::byte* src = host.row_bytes(block * kBlockColumns);
    std::byte* dst = static_cast<std::byte*>(destination) + block * lines * 64;
    for (int64_t line = 0; line < lines; line += kWords) {
      const int64_t left = std::clamp<int64_t>(row_bytes - line * 4, 0, kWords * 4);
      if (rows == kBlockColumns && left == kWords * 4) {
        pack_words(host.dtype, src + line * 4, stride, dst + line * 64);
      } else {
        pack_edge(host.dtype, src + std::min(line * 4, row_bytes), stride, rows, left, dst + line * 64, std::min(kWords, lines - line));
      }
    }
  }
}

}  // namespace baton::cpu
