// A checkpoint folder in the released layout, memory-mapped: config.json and safetensors shards with or without an index.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "model/config.h"
#include "tensor/view.h"

namespace baton::model {

// A tensor in a mapped file. Row-major, little-endian, data possibly unaligned for its type.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  int32_t shard = 0;

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    return n;
  }
};

// What the model expects of one tensor of the checkpoint.
enum class StorageClass : uint8_t {
  kWeight,       // BF16 or F32
  kQuantisable,  // BF16, F32, or F8_E4M3 with a sibling <name>_scale_inv [ceil(n/128), ceil(k/128)] F32
  kFloat         // F32 (BF16 accepted and widened)
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  StorageClass storage = StorageClass::kWeight;
  int32_t layer = -1;  // -1: not of a layer
};

// Every text tensor of the architecture, MTP layer included, in file order of a release. Scales are not listed.
std::vector<TensorSpec> expected_tensors(const Config& config);

class Checkpoint {
 public:
  // Maps all shards and validates everything before returning: missing, unknown, misshapen, overlapping and wrongly typed tensors are
  // reported together in one error. Vision tensors (model.visual.*) are skipped.
  static Result<Checkpoint> open(const std::filesystem::path& dir);

  const Config& config() const { return config_; }
  const std::filesystem::path& dir() const { return dir_; }
  // nullptr if absent. Accepts the released name only.
  const TensorEntry* find(std::string_view name) const;
  // The scale of an FP8 matrix, or nullptr.
  const TensorEntry* scale_of(std::string_view name) const;
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // text tensors and scales, sorted by name
  int64_t skipped_vision_tensors() const { return skipped_vision_; }
  int64_t file_bytes() const;
  int64_t shard_count() const { return static_cast<int64_t>(files_.size()); }
  // Tells the system that a range of a mapped tensor is not needed again (it stays readable).
  static void drop_pages(const std::byte* data, int64_t bytes);

 private:
  Config config_;
  std::filesystem::path dir_;
  std::vector<MappedFile> files_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
  int64_t skipped_vision_ = 0;
};

}  // namespace baton::model
