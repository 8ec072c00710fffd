// Synthetic checkpoints: any configuration, random weights of sane scale, the layout of a release. They load and run like real ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "model/stored_tensors.h"

namespace baton::model {

struct SynthOptions {
  WeightFormat format = WeightFormat::kBF16;
  uint64_t seed = 0;
  int64_t shards = 0;                                              // 0: as many as files of at most 5 GB need
  int threads = 1;                                                 // the result does not depend on it
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes; called from one thread at a time
  const std::atomic<bool>* stop = nullptr;                         // set by others: give up, leave nothing behind
};

struct SynthSummary {
  int64_t parameters = 0;
  int64_t bytes = 0;
  int64_t tensors = 0;
  int64_t shards = 0;
};

// Writes folder `out`, which must be absent or empty. `config_json` is the text of a config.json; the copy in `out` names the format
// written. Weights are made and written in pieces: memory does not grow with the checkpoint. On failure `out` is as it was.
Result<SynthSummary> write_synthetic_checkpoint(const std::string& config_json, const std::string& config_where,
                                                const std::filesystem::path& out, const SynthOptions& options);

}  // namespace baton::model
