// An engine on one device of this machine: model, budget, executor and engine thread, put together from one set of options.
#pragma once

#include <memory>
#include <string>

#include "cache/budget.h"
#include "engine/drafter_source.h"
#include "engine/engine.h"
#include "model/checkpoint.h"
#include "model/glm5_next.h"
#include "ops/cpu/backend.h"
#include "pd/decode_end.h"

namespace baton::engine {

enum class Device : uint8_t { kCpu, kCuda };

enum class RoleKind : uint8_t { kUnified, kPrefill, kDecode };

// What an engine is among others.
struct HandOver {
  RoleKind role = RoleKind::kUnified;
  HandOverLinks links;                   // to the others; of both ends
  std::vector<pd::InstanceId> prefills;  // that a decode instance orders from
  int32_t decodes = 1;                   // that share the slots of a prefill instance
  pd::DecodeOptions waits;               // of a decode instance: how long for what; the rest of it follows from the other options
};

struct LocalOptions {
  Device device = Device::kCpu;
  bool unproven_kernels = false;  // of CUDA: also those that have not been checked on a device
  cpu::BackendOptions backend;    // of the CPU; its threads also load the weights
  model::Numerics numerics;
  model::CacheTypes cache;
  int64_t context_tokens = 0;  // 0: the model's max_position_embeddings
  int64_t vocabulary = 0;      // ids from here on are neither taken nor drawn: rows that fill up the model's matrix; 0: none do
  int32_t running = 16;        // requests that run at once
  int64_t memory_bytes = 0;    // 0: nine tenths of what the system, or the device, has available
  int64_t pool_tokens = cache::kAutomatic;  // automatic: what is left, at most every running request's whole context
  int32_t snapshots = cache::kAutomatic;
  int64_t host_bytes = 0;
  int64_t prefill_tokens = 512;
  int64_t growth_tokens = 256;
  int64_t snapshot_tokens = 256;
  int32_t max_waiting = 1024;
  int32_t max_mail = 1 << 16;
  bool plan_ahead = true;
  Speculation speculation;
  HandOver hand_over;     // a decode instance has no snapshots, whatever `snapshots` says
  DrafterSource drafter;  // instead of what `speculation` says, if it drafts; for tests
  // What the user set context_tokens and running by, for messages.
  std::string context_flag = "--context";
  std::string running_flag = "--max-running";
};

class LocalEngine {
 public:
  // Loads the weights and allocates everything; refuses what does not fit, naming the flag to change.
  static Result<std::unique_ptr<LocalEngine>> open(const model::Checkpoint& checkpoint, const LocalOptions& options);
  ~LocalEngine();

  Engine& engine() { return *engine_; }
  const cache::Budget& budget() const { return budget_; }
  const model::Glm5Next& model() const { return *model_; }
  int64_t context_tokens() const { return context_tokens_; }
  const DrafterSource& drafter() const { return drafter_; }

 private:
  LocalEngine() = default;

  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<model::Glm5Next> model_;
  cache::Budget budget_;
  int64_t context_tokens_ = 0;
  DrafterSource drafter_;
  std::unique_ptr<Engine> engine_;  // first to go
};

}  // namespace baton::engine
