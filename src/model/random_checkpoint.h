// A checkpoint of any configuration with random weights, in memory: for measuring models that are too large to be written first.
#pragma once

#include <cstdint>
#include <string>

#include "model/checkpoint.h"
#include "model/stored_tensors.h"

namespace baton::model {

// Weights of the same scale as those of a synthetic checkpoint (synth.h). Tensors that differ only by their layer or expert share their
// bytes, and tall matrices repeat their rows: the memory needed is about that of one layer, the embedding and the head. A backend that
// copies weights holds each by itself, as ever. `where` names the configuration in messages.
Result<Checkpoint> random_checkpoint(const std::string& config_json, const std::string& where, WeightFormat format, uint64_t seed,
                                     int threads);

}  // namespace baton::model
