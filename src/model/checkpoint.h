// A checkpoint folder in the released layout, memory-mapped: config.json and safetensors shards with or without an index.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/tensor_set.h"

namespace baton::model {

// Every text tensor of the architecture, MTP layer included, in file order of a release. Scales are not listed.
std::vector<TensorSpec> expected_tensors(const Config& config);

class Checkpoint {
 public:
  // Maps all shards and validates everything before returning; see TensorSet::open. Vision tensors (model.visual.*) are skipped.
  static Result<Checkpoint> open(const std::filesystem::path& dir);
  // Of tensors that are already there, under their released names (random_checkpoint.h).
  Checkpoint(Config config, TensorSet set) : config_(std::move(config)), set_(std::move(set)) {}

  const Config& config() const { return config_; }
  const std::filesystem::path& dir() const { return set_.dir(); }
  const TensorSet& set() const { return set_; }
  // nullptr if absent. Accepts the released name only.
  const TensorEntry* find(std::string_view name) const { return set_.find(name); }
  // The scale of an FP8 matrix, or nullptr.
  const TensorEntry* scale_of(std::string_view name) const { return set_.scale_of(name); }
  const std::vector<TensorEntry>& tensors() const { return set_.tensors(); }  // text tensors and scales, sorted by name
  int64_t skipped_vision_tensors() const { return set_.skipped(); }
  int64_t file_bytes() const { return set_.file_bytes(); }
  int64_t shard_count() const { return set_.file_count(); }
  // Tells the system that a range of a mapped tensor is not needed again (it stays readable).
  static void drop_pages(const std::byte* data, int64_t bytes) { TensorSet::drop_pages(data, bytes); }

 private:
  Checkpoint() = default;

  Config config_;
  TensorSet set_;
};

}  // namespace baton::model
