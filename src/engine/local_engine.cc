#include "engine/local_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "engine/decode_role.h"
#include "engine/fingerprint.h"
#include "engine/hand_over_memory.h"
#include "engine/prefill_role.h"
#include "engine/serial_executor.h"
#include "ops/batch.h"
#include "ops/cuda/open.h"

namespace baton::engine {
namespace {

// "MemTotal:" or "MemAvailable:" of /proc/meminfo, in bytes; 0 where there is none.
int64_t system_memory(std::string_view wanted) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes) {
    std::getline(file, unit);
    if (name == wanted) return kibibytes * 1024;
  }
  return 0;
}

// What no machine like this can give; less than that, and more than is free at the moment, is the user's business.
Status check_memory(const LocalOptions& o, int64_t memory, int64_t device_free) {
  const int64_t total = system_memory("MemTotal:");
  const int64_t most = o.device == Device::kCpu ? total : device_free;
  if (most > 0 && memory > most)
    return Error{Error::Kind::kInvalid,
                 fmt::format("--memory {} is more than there is ({} bytes); lower it, or leave it out", memory, most)};
  const int64_t host = o.host_bytes + (o.device == Device::kCpu ? memory : 0);
  if (total > 0 && o.host_bytes > 0 && host > total)
    return Error{Error::Kind::kInvalid, fmt::format("--host-memory {}{} is more than this machine has ({} bytes); lower it", o.host_bytes,
                                                    o.device == Device::kCpu ? fmt::format(" with --memory {}", memory) : "", total)};
  return {};
}

cache::BudgetRequest budget_request(const model::Glm5Next& model, const model::Drafter* drafter, const LocalOptions& o, int64_t context,
                                    int64_t memory) {
  const model::CacheLayout& layout = model.cache_layout();
  const cache::Registry registry = register_ranges(layout);
  model::CacheTypes plain = model.options().cache;
  plain.mtp = false;
  plain.verify_rows = 0;
  const model::CacheLayout without = model::plan_cache(model.config(), plain);
  return {.memory_bytes = memory,
          .weight_bytes = model.weight_bytes() + (drafter != nullptr ? drafter->weight_bytes() : 0),
          .workspace_bytes = model.workspace_bytes() + (drafter != nullptr ? drafter->workspace_bytes() : 0) +
                             SerialExecutor::workspace_bytes(model, o.running, context, o.speculation.sampled_proposals),
          .page_bytes = layout.page_bytes,
          .slot_bytes = layout.slot_bytes,
          .ring_bytes = layout.ring_bytes,
          .snapshot_bytes = registry.snapshot_bytes(),
          .plain_slot_bytes = without.slot_bytes,
          .plain_page_bytes = without.page_bytes,
          .drafter_bytes = drafter != nullptr ? drafter->weight_bytes() + drafter->workspace_bytes() : 0,
          .context_tokens = context,
          .running = o.running,
          .pool_tokens = o.pool_tokens,
          .snapshots = o.hand_over.role == RoleKind::kDecode ? 0 : o.snapshots,
          .host_bytes = o.host_bytes,
          .context_flag = o.context_flag,
          .running_flag = o.running_flag};
}

std::unique_ptr<Role> make_role(const LocalOptions& o, int32_t slots, int64_t context, transfer::Memory memory) {
  const HandOver& h = o.hand_over;
  if (h.role == RoleKind::kDecode) {
    pd::DecodeOptions options = h.waits;
    options.self = h.links.self;
    options.slots = slots;
    options.most_waiting = o.max_waiting;
    return std::make_unique<DecodeRole>(options, h.prefills, h.links, std::move(memory));
  }
  // Free slots, shared among those who order, and one: the next prompt is there when one ends.
  return std::make_unique<PrefillRole>(
      pd::PrefillOptions{.self = h.links.self, .credits = std::max(1, slots / h.decodes) + 1, .context_tokens = context - 1}, h.links,
      std::move(memory));
}

}  // namespace

Result<std::unique_ptr<LocalEngine>> LocalEngine::open(const model::Checkpoint& checkpoint, const LocalOptions& o) {
  const int64_t longest = checkpoint.config().max_position_embeddings;
  const int64_t context = o.context_tokens > 0 ? o.context_tokens : longest;
  if (context > longest)
    return Error{Error::Kind::kInvalid,
                 fmt::format("{} {} exceeds the model's {} positions (max_position_embeddings)", o.context_flag, context, longest)};
  const int64_t vocabulary = o.vocabulary > 0 ? o.vocabulary : checkpoint.config().vocab_size;
  if (vocabulary > checkpoint.config().vocab_size)
    return Error{Error::Kind::kInvalid,
                 fmt::format("the tokenizer's ids go up to {}, and the model's vocabulary has {}; one of them is another model's",
                             vocabulary - 1, checkpoint.config().vocab_size)};
  std::unique_ptr<LocalEngine> e(new LocalEngine());
  int64_t available = 0;
  if (o.device == Device::kCuda) {
    if (o.speculation.sampled_proposals)
      return Error{Error::Kind::kUnsupported, "--speculative-sampled-proposals runs on --device cpu alone; leave it out"};
    BATON_ASSIGN(cuda::OpenedDevice opened, cuda::open_device({.unproven = o.unproven_kernels}));
    e->backend_ = std::move(opened.backend);
    available = opened.free_bytes;
  } else {
    e->backend_ = std::make_unique<cpu::CpuBackend>(o.backend);
    available = system_memory("MemAvailable:");
  }
  const int64_t memory = o.memory_bytes > 0 ? o.memory_bytes : available / 10 * 9;
  if (memory == 0) return Error{Error::Kind::kUnsupported, "the system does not say how much memory is available; give --memory"};
  BATON_TRY(check_memory(o, memory, available));

  e->context_tokens_ = context;
  model::ModelOptions m;
  m.numerics = o.numerics;
  m.cache = o.cache;
  e->drafter_ = o.drafter;
  if (e->drafter_.needs.most_drafts == 0) {
    BATON_ASSIGN(e->drafter_, choose_drafter(o.speculation, checkpoint.config(), o.numerics.activation, context));
  }
  const int32_t drafts = e->drafter_.needs.most_drafts;
  m.drafter = e->drafter_.needs;
  m.cache.mtp = e->drafter_.mtp;
  m.cache.verify_rows = drafts > 0 ? 1 + drafts : 0;
  m.max_rows = o.prefill_tokens + o.running * (1 + drafts);
  m.max_logits_rows = o.running * (1 + drafts);
  m.max_sequences = o.running;
  m.max_pages = (context + ops::kPageTokens - 1) / ops::kPageTokens;
  m.loading.threads = o.backend.threads;
  BATON_ASSIGN(e->model_, model::Glm5Next::load(checkpoint, *e->backend_, m));

  std::unique_ptr<model::Drafter> drafter;
  if (drafts > 0) {
    BATON_ASSIGN(drafter, e->drafter_.load(*e->model_, *e->backend_, vocabulary));
  }
  cache::BudgetRequest request = budget_request(*e->model_, drafter.get(), o, context, memory);
  BATON_ASSIGN(e->budget_, cache::solve_budget(request));
  // More than everybody's whole context would only ever be cache; what the bookkeeping of such a pool costs shows in start-up time.
  const int64_t most = o.running * m.max_pages * ops::kPageTokens;
  if (o.pool_tokens == cache::kAutomatic && int64_t{e->budget_.pages} * ops::kPageTokens > most) {
    request.pool_tokens = most;
    BATON_ASSIGN(e->budget_, cache::solve_budget(request));
  }

  if (o.hand_over.role != RoleKind::kUnified && o.device != Device::kCpu)
    return Error{Error::Kind::kUnsupported, "prefill and decode apart run on the CPU so far; leave out --device"};
  BATON_ASSIGN(auto executor, SerialExecutor::create(*e->model_, *e->backend_, e->budget_, context, vocabulary, std::move(drafter),
                                                     o.speculation.sampled_proposals));
  EngineOptions options;
  options.plan_ahead = o.plan_ahead;
  options.max_mail = o.max_mail;
  options.scheduler = {.memory = {.pages = e->budget_.pages,
                                  .slots = e->budget_.slots,
                                  .snapshots = e->budget_.snapshots,
                                  .host_pages = e->budget_.host_pages,
                                  .host_slots = e->budget_.host_slots},
                       .context_tokens = context,
                       .vocabulary = vocabulary,
                       .prefill_tokens = o.prefill_tokens,
                       .growth_tokens = o.growth_tokens,
                       .snapshot_tokens = o.snapshot_tokens,
                       .max_waiting = o.max_waiting,
                       .drafts = drafts,
                       .adaptive_drafts = o.speculation.adaptive,
                       .look_ahead = e->drafter_.needs.reads_next_token ? 1 : 0};
  std::unique_ptr<Role> role;
  if (o.hand_over.role != RoleKind::kUnified)
    role = make_role(
        o, e->budget_.slots, context,
        hand_over_memory(*executor, e->model_->cache_layout(), e->budget_, fingerprint(checkpoint, m.cache, e->model_->cache_layout())));
  BATON_ASSIGN(e->engine_, Engine::create(std::move(executor), options, std::move(role)));
  return e;
}

LocalEngine::~LocalEngine() = default;

}  // namespace baton::engine
