// The folder of a DFlash2 drafter, memory-mapped: config.json and safetensors.
#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"
#include "model/dflash2_config.h"
#include "model/tensor_set.h"

namespace baton::model {

// Every tensor of the architecture. There is no embedding and no head: these are the target's.
std::vector<TensorSpec> dflash2_tensors(const DFlash2Config& config);

class DFlash2Checkpoint {
 public:
  // Maps the files and validates everything before returning; see TensorSet::open.
  static Result<DFlash2Checkpoint> open(const std::filesystem::path& dir);

  const DFlash2Config& config() const { return config_; }
  const TensorSet& set() const { return set_; }

 private:
  DFlash2Config config_;
  TensorSet set_;
};

}  // namespace baton::model
