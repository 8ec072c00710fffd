// Any bytes as config.json of a model or of a drafter: refused, or sizes that can be planned with: no list grows beyond its bound and no
// product overflows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/checkpoint.h"
#include "model/dflash2_checkpoint.h"
#include "model/memory_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto drafter = baton::model::parse_dflash2_config(text, "fuzz");
  if (drafter.ok())
    for (const auto& tensor : baton::model::dflash2_tensors(*drafter))
      for (const int64_t extent : tensor.shape)
        if (extent < 1) std::abort();
  if (!drafter.ok() && drafter.error().message.empty()) std::abort();
  const auto config = baton::model::parse_config(text, "fuzz");
  if (!config.ok()) {
    if (config.error().message.empty()) std::abort();
    return 0;
  }
  if (config->layer_count() < 1 || config->index_topk % config->index_kpool != 0 || 64 % config->index_kpool != 0) std::abort();
  baton::model::cache_sizes(*config);
  // Long lists are sound, but too slow for a fuzzer.
  if ((config->layer_count() + 1) * config->experts > 4096) return 0;
  for (const auto format : {baton::model::WeightFormat::kF32, baton::model::WeightFormat::kFp8}) {
    const auto tensors = baton::model::stored_tensors(*config, format);
    const auto sizes = baton::model::measure_weights(tensors, *config);
    for (const int gpus : {1, 3, 8})
      if (baton::model::gpu_share(sizes, *config, gpus).bytes() <= 0) std::abort();
  }
  return 0;
}
