// The safetensors files of a checkpoint folder: one file, or shards with an index that says what lies where.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/problems.h"
#include "model/safetensors.h"

namespace baton::model {

struct Shard {
  MappedFile file;
  std::vector<SafetensorsTensor> tensors;
};

// Maps all files and parses their headers. Unreadable files, unsound headers and disagreements between index and shards go to `problems`;
// the shards that could be read are returned all the same.
std::vector<Shard> open_shards(const std::filesystem::path& dir, Problems& problems);

}  // namespace baton::model
