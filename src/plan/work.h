// What one GPU of an instance has to do in a decode cycle or a prefill chunk: FLOP, bytes of its memory, bytes to its peers, by part of the
// model. Counted from the dimensions alone, as if every byte moved once and nothing waited.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "plan/gpu.h"

namespace baton::plan {

// How the GPUs of an instance share the work.
enum class Layout : uint8_t {
  kTensor,    // decode: heads of every layer and columns of every expert are split; the latent cache stands on every GPU
  kByRequest  // decode: each request lives on one GPU, each expert on one GPU; prefill: tokens are split, each expert on one GPU
};

enum class Drafter : uint8_t { kNone, kMtp, kDFlash2 };

struct Work {
  std::string part;  // for people
  std::string op;    // the name of its measurement (bench/gpu), may be empty
  double repeats = 1;
  // Of one repeat on one GPU:
  double flop = 0;
  bool fp8 = false;  // whether the products are FP8
  double bytes = 0;
  double peer_bytes = 0;
  double kernels = 1;
};

// Seconds of all repeats: compute, memory and links each at their ceiling, the slowest rules.
double floor_seconds(const Work& work, const Gpu& gpu);

struct DecodeShape {
  Layout layout = Layout::kByRequest;
  double gpus = 1;
  double requests = 1;  // of the whole instance
  double rows = 1;      // a request and cycle: 1 + drafted tokens
  double context = 0;   // tokens before the rows
  Drafter drafter = Drafter::kNone;
  double accepted = 1;     // tokens that a cycle yields, for each request
  double state_bytes = 2;  // of a number in the KDA state
  bool fp8_latent = true;  // else BF16
  bool fold = true;        // ReplaySSM: the state is read once and written once; else it is read and written for each row
};

std::vector<Work> decode_work(const model::Config& config, const DecodeShape& shape);

struct PrefillShape {
  double gpus = 1;
  bool split_experts = false;  // columns of each expert on every GPU, instead of whole experts
  double chunk = 0;            // tokens of the instance
  double past = 0;             // tokens before a row, in the mean
  bool fp8_transport = true;   // rows travel to experts as FP8 with scales; else BF16
};

std::vector<Work> prefill_work(const model::Config& config, const PrefillShape& shape);

// The drafter of the released model (DFlash2): what a plan needs to know of it.
struct DFlash2 {
  static constexpr double kParameters = 1.171e9;
  static constexpr double kFeatureParameters = 83.9e6;  // run for every committed token, the rest for every row
  static constexpr double kSelectorRank = 256;
  static constexpr double kLayers = 5, kWindow = 2048, kKeyValueWidth = 2 * 8 * 128;
  static constexpr double window_bytes() { return kLayers * kWindow * kKeyValueWidth * 2; }
  static constexpr double weight_bytes() { return kParameters * 2; }
};

}  // namespace baton::plan
