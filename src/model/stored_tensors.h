// What a checkpoint of given format holds on disk: every tensor with its type, scales included.
#pragma once

#include <string>
#include <vector>

#include "model/checkpoint.h"

namespace baton::model {

enum class WeightFormat : uint8_t { kF32, kBF16, kFp8 };

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    return n;
  }
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
};

// As released: kFp8 stores quantisable matrices as FP8, each directly followed by its scale, and all other weights as BF16.
std::vector<StoredTensor> stored_tensors(const Config& config, WeightFormat format);

// The same of a checkpoint that exists.
std::vector<StoredTensor> stored_tensors(const Checkpoint& checkpoint);

inline constexpr std::string_view kScaleSuffix = "_scale_inv";

}  // namespace baton::model
