// What the memory of one GPU of an instance holds, and how many requests that lets run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "plan/gpu.h"
#include "plan/work.h"
#include "tensor/number.h"

namespace baton::plan {

struct CacheChoice {
  DType latent = DType::kF8E4M3;  // kBF16, kF8E4M3
  DType state = DType::kBF16;     // kBF16, kF32
  // How rejected rows are undone: a ring of what the rows read (ReplaySSM), or a copy of the state for each row.
  bool replay = true;
  int32_t rows = 8;  // of a request and cycle
  Drafter drafter = Drafter::kDFlash2;
};

struct MemoryQuestion {
  Layout layout = Layout::kByRequest;
  int32_t gpus = 1;
  CacheChoice cache;
  int64_t context_tokens = 0;             // of a request when it ends: prompt and output
  int64_t shared_tokens = 0;              // of which stand in the cache once for all requests; whole pages of them count
  int64_t reserve_bytes = 8'000'000'000;  // workspace, graphs, the driver's own
};

struct Memory {
  struct Line {
    std::string name;
    int64_t bytes = 0;
  };
  std::vector<Line> fixed;        // weights by kind, drafter, reserve, shared pages
  std::vector<Line> per_request;  // what one request takes of one GPU (by request: of its GPU)
  int64_t total_bytes = 0;
  int64_t fixed_bytes = 0;
  int64_t request_bytes = 0;
  int64_t running = 0;  // requests of the whole instance; 0 where not even the weights fit

  int64_t unused_bytes() const;
};

// What a whole instance has beside its weights, and what it is spent on.
struct Room {
  int64_t bytes = 0;           // may be negative: not even the weights fit
  int64_t page_bytes = 0;      // 64 tokens
  int64_t request_bytes = 0;   // of one that runs, without its pages
  int64_t snapshot_bytes = 0;  // a state that is kept
};
// `drafts`: whether requests that run draft here; prefill instances do not.
Room room_of(const model::Config& config, const Gpu& gpu, const MemoryQuestion& question, bool drafts);

Memory plan_memory(const model::Config& config, const Gpu& gpu, const MemoryQuestion& question);

// A pool for states beside one for tokens, split by a fixed ratio before anyone knows the load, as engines do that size pools by a flag:
// states get ratio / (1 + ratio) of what is free.
struct SplitPools {
  int64_t states = 0;    // that the state pool holds
  int64_t requests = 0;  // that the token pool holds
  double state_use() const { return states == 0 ? 0 : static_cast<double>(requests) / static_cast<double>(states); }
};
SplitPools split_pools(int64_t free_bytes, double ratio, int64_t state_bytes, int64_t token_bytes_of_request);

}  // namespace baton::plan
