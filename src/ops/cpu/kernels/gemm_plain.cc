// The matrix products as plain loops: the definition that the other instruction sets are tested against.
#include "ops/cpu/kernels/gemm_kernels.h"
#include "ops/cpu/kernels/gemm_rows.h"
#include "ops/cpu/packed_layout.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {
namespace {

float weight_at(const Strip& s, int64_t n, int64_t k) {
  const auto* block = static_cast<const std::byte*>(s.w) + n / kBlockColumns * block_bytes(s.w_dtype, s.k);
  const int64_t i = packed_index(s.w_dtype, n % kBlockColumns, k);
  switch (s.w_dtype) {
    case DType::kBF16: return to_float(reinterpret_cast<const bf16*>(block)[i]);
    case DType::kF8E4M3: return to_float(reinterpret_cast<const e4m3*>(block)[i]);
    default: return reinterpret_cast<const float*>(block)[i];
  }
}

float product(const Strip& s, int64_t r, int64_t n) {
  const auto* x = reinterpret_cast<const float*>(static_cast<const std::byte*>(s.x) + r * s.x_stride);
  float y = 0;
  for (int64_t begin = 0; begin < s.k; begin += kGroupDepth) {
    const int64_t end = s.k - begin < kGroupDepth ? s.k : begin + kGroupDepth;
    const int64_t group = begin / kGroupDepth;
    float p = 0;
    for (int64_t i = begin; i < end; ++i) p = __builtin_fmaf(x[i], weight_at(s, n, i), p);
    if (s.w_dtype != DType::kF8E4M3) {
      y = group == 0 ? p : y + p;
    } else {
      const float scaled = s.x_scale == nullptr ? p : p * s.x_scale[r * s.x_scale_stride + group];
      y = __builtin_fmaf(scaled, s.w_scale[group], y);
    }
  }
  return y;
}

void float_strip(const Strip& s) {
  for (int64_t r = 0; r < s.m; ++r)
    for (int64_t n = 0; n < s.blocks * kBlockColumns; ++n) s.y[r * s.y_stride + n] = product(s, r, n);
}

}  // namespace

extern const GemmKernels kGemmKernels;
const GemmKernels kGemmKernels = {
    .float_strip = float_strip,
    .bf16_strip = nullptr,
    .quantise_row = quantise_row,
    .store = store_rows,
    .swiglu = swiglu_rows,
    .weighted_sum = weighted_sum,
};

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
