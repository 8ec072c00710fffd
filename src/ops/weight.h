// A weight matrix W[n, k] as a backend keeps it.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace baton::ops {

inline constexpr int64_t kScaleBlock = 128;  // block FP8: one float scale per 128 x 128 elements, ragged blocks at the edges

struct WeightView {
  const void* data = nullptr;    // in the backend's own order: CPU: tiles, see ops/cpu/packed_weight.h; CUDA: row-major [n, k]
  const float* scale = nullptr;  // kF8E4M3 only: [ceil(n / 128), ceil(k / 128)] row-major; value = element * scale
  DType dtype = DType::kF32;     // kF32, kBF16 or kF8E4M3
  int64_t n = 0;
  int64_t k = 0;

  bool empty() const { return data == nullptr; }
};

// How the input of an FP8 weight enters the product. Other weights ignore it.
enum class ActivationQuant : uint8_t {
  kNone,      // the input as it is
  kE4m3Block  // per row and 128 columns: scale = amax / 448 (1 if all are zero), x / scale rounded to e4m3
};

}  // namespace baton::ops
