// The flags that say how a model is computed and how much of it runs at once, shared by the commands that run one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "engine/local_engine.h"

namespace baton::app {

struct ModelFlags {
  int64_t prefill_tokens = 512;
  int threads = 0;  // 0: as many as cores
  std::string device = "cpu";
  bool unproven_kernels = false;
  std::string isa;
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string index_dtype = "auto";
  std::string state_dtype = "float32";
  std::string activation_quant = "none";
  std::string kda = "recurrent";
  std::string attention = "absorbed";
  int64_t memory_bytes = 0;
  int64_t pool_tokens = cache::kAutomatic;
  int32_t snapshots = cache::kAutomatic;
  int64_t host_bytes = 0;
  engine::Speculation speculation;

  void add_to(CLI::App& command);
  // Only where the model runs and in which types.
  void add_numerics_to(CLI::App& command);
  // Without context_tokens and running, which each command knows best.
  Result<engine::LocalOptions> local_options(const model::Checkpoint& checkpoint) const;
};

}  // namespace baton::app
