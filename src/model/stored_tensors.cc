#include "model/stored_tensors.h"

#include "ops/weight.h"

namespace baton::model {

std::vector<StoredTensor> stored_tensors(const Config& config, WeightFormat format) {
  const auto blocks = [](int64_t n) { return (n + ops::kScaleBlock - 1) / ops::kScaleBlock; };
  std::vector<StoredTensor> out;
  for (TensorSpec& spec : expected_tensors(config)) {
    const bool quantised = spec.storage == StorageClass::kQuantisable && format == WeightFormat::kFp8;
    const bool wide = spec.storage == StorageClass::kFloat || format == WeightFormat::kF32;
    out.push_back({spec.name, quantised ? DType::kF8E4M3 : wide ? DType::kF32 : DType::kBF16, spec.shape});
    if (quantised) out.push_back({spec.name + std::string(kScaleSuffix), DType::kF32, {blocks(spec.shape[0]), blocks(spec.shape[1])}});
  }
  return out;
}

std::vector<StoredTensor> stored_tensors(const Checkpoint& checkpoint) {
  std::vector<StoredTensor> out;
  out.reserve(checkpoint.tensors().size());
  for (const TensorEntry& t : checkpoint.tensors()) out.push_back({t.name, t.dtype, t.shape});
  return out;
}

}  // namespace baton::model
