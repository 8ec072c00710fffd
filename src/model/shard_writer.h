// Lays tensors out over safetensors files: which file, which offset, the headers and the index.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/stored_tensors.h"

namespace baton::model {

struct ShardPlan {
  std::string file;
  std::string header;           // length and JSON, as they stand at the begin of the file
  std::vector<size_t> tensors;  // indices into the list that was planned
  std::vector<int64_t> offset;  // of each, in the file
  int64_t bytes = 0;            // of the file
};

// Cuts the list, in order, into files of about equal size. `shards` must lie between 1 and the number of tensors.
std::vector<ShardPlan> plan_shards(const std::vector<StoredTensor>& tensors, int64_t shards);

// model.safetensors.index.json for more than one shard.
std::string index_json(const std::vector<StoredTensor>& tensors, const std::vector<ShardPlan>& shards);

}  // namespace baton::model
