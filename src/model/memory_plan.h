// Where the bytes of a model go: weights by part and by type, shares of the GPUs of a layout, caches per token and per request.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/stored_tensors.h"

namespace baton::model {

enum class Part : uint8_t {
  kEmbedding,
  kHead,
  kNorms,
  kHyperConnections,  // mHC of all layers
  kKda,
  kSparseAttention,  // without its indexer
  kIndexer,
  kDenseMlp,
  kRouter,
  kSharedExperts,
  kRoutedExperts,
  kMtp,  // the MTP layer without its routed experts
  kMtpRoutedExperts
};
inline constexpr size_t kPartCount = 13;

std::string_view part_name(Part part);

// The part that a tensor belongs to, by its released name.
Part part_of(std::string_view tensor_name, const Config& config);

struct PartSize {
  int64_t tensors = 0;
  int64_t parameters = 0;                   // scales are no parameters
  int64_t scales = 0;                       // float scales of FP8 blocks
  std::array<int64_t, 5> bytes_by_dtype{};  // indexed by DType; scales count as F32

  int64_t bytes() const {
    int64_t sum = 0;
    for (const int64_t b : bytes_by_dtype) sum += b;
    return sum;
  }
  void add(const PartSize& other);
};

struct WeightSizes {
  std::array<PartSize, kPartCount> parts;

  const PartSize& operator[](Part part) const { return parts[static_cast<size_t>(part)]; }
  PartSize total() const;
  PartSize main_model() const;  // without the MTP layer
  PartSize mtp_layer() const;
  int64_t active_parameters = 0;  // that one token meets in the main model: embedding row, head, and the experts of one choice
};

WeightSizes measure_weights(const std::vector<StoredTensor>& tensors, const Config& config);

// Data-parallel attention, expert-parallel routed experts. Rank r holds experts in contiguous blocks; where they do not divide evenly, the
// numbers are those of the fullest rank. Everything else is replicated; the embedding, the head and the dense MLPs may be split as well.
struct GpuShare {
  int gpus = 1;
  int64_t experts = 0;  // routed experts per MoE layer
  int64_t replicated_bytes = 0;
  int64_t expert_bytes = 0;
  int64_t splittable_bytes = 0;  // the part of replicated_bytes in embedding, head and dense MLPs

  int64_t bytes() const { return replicated_bytes + expert_bytes; }
  int64_t bytes_with_split() const { return bytes() - splittable_bytes + (splittable_bytes + gpus - 1) / gpus; }
};

GpuShare gpu_share(const WeightSizes& sizes, const Config& config, int gpus);

// Bytes without alignment. All sparse layers together; `_mtp` members say what the MTP layer adds.
struct CacheSizes {
  // per token
  int64_t latent_bf16 = 0, latent_bf16_mtp = 0;
  int64_t latent_fp8 = 0, latent_fp8_mtp = 0;  // codes and one float scale per 128
  // per pool of index_kpool tokens
  int64_t index_bf16 = 0, index_bf16_mtp = 0;
  int64_t index_fp8 = 0, index_fp8_mtp = 0;  // codes and one float scale per key
  // per request
  int64_t state_f32 = 0;
  int64_t state_bf16 = 0;
  int64_t window_bf16 = 0;                   // inputs of the short convolutions
  int64_t tail_bf16 = 0, tail_bf16_mtp = 0;  // keys and gates of the open pool
};

CacheSizes cache_sizes(const Config& config);

}  // namespace baton::model
