// The tensors of a folder of safetensors files, mapped and compared with what an architecture needs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
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

// What a folder may hold beside the tensors that are expected, and under which other names.
struct TensorNaming {
  std::string_view skipped_prefix;                             // tensors of this prefix are counted and left alone; empty: none
  std::string (*expected_name)(const std::string&) = nullptr;  // of a name as a file spells it; null: the same
};

class TensorSet {
 public:
  // Maps all files and validates everything before returning: missing, unknown, misshapen, overlapping and wrongly typed tensors and bad
  // scales are reported together in one error.
  static Result<TensorSet> open(const std::filesystem::path& dir, const std::vector<TensorSpec>& specs, const TensorNaming& naming);

  // Of tensors that point into `memory`, several perhaps at the same bytes; nothing is validated. `name` takes the folder's place in
  // messages.
  static TensorSet of_memory(std::string name, std::vector<TensorEntry> tensors, MappedFile memory);

  const std::filesystem::path& dir() const { return dir_; }
  const TensorEntry* find(std::string_view name) const;                 // nullptr if absent
  const TensorEntry* scale_of(std::string_view name) const;             // of an FP8 matrix, or nullptr
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // scales included, sorted by name
  int64_t skipped() const { return skipped_; }
  int64_t file_bytes() const;
  int64_t file_count() const { return static_cast<int64_t>(files_.size()); }
  // Tells the system that a range of a mapped tensor is not needed again (it stays readable).
  static void drop_pages(const std::byte* data, int64_t bytes);

 private:
  std::filesystem::path dir_;
  std::vector<MappedFile> files_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
  int64_t skipped_ = 0;
};

}  // namespace baton::model
