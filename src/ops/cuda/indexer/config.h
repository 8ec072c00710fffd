// Problem to configuration of the indexer's choice of pools. Pure: no CUDA, tested on any machine.
#pragma once

#include <cstdint>

#include "ops/indexer.h"

namespace baton::cuda::indexer {

struct Config {
  int32_t groups = 0;        // of 8 neighbouring rows
  int32_t splits = 1;        // blocks that share the keys of a group; no score depends on it
  int64_t score_stride = 0;  // floats a row
  int64_t workspace_bytes = 0;
};

// Nothing about these sizes and types is unsupported: 32 heads of 128, pools of 4 tokens, e4m3 keys. Reads no data pointer.
bool supported(const ops::IndexerSelectParams& params);
Config configure(const ops::IndexerSelectParams& params, int multiprocessors);

}  // namespace baton::cuda::indexer
