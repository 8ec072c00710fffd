#include "app/model_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "speculate/metrics.h"

namespace baton::app {
namespace {

const std::map<std::string, DType> kTypes = {{"float32", DType::kF32}, {"bfloat16", DType::kBF16}, {"fp8_e4m3", DType::kF8E4M3}};

DType type_or(const std::string& name, DType automatic) { return name == "auto" ? automatic : kTypes.at(name); }

// What `auto` means: float arithmetic for a float checkpoint, bfloat16 otherwise.
DType natural_type(const model::Checkpoint& checkpoint) {
  const model::TensorEntry* embed = checkpoint.find("model.language_model.embed_tokens.weight");
  return embed != nullptr && embed->dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
}

}  // namespace

void ModelFlags::add_numerics_to(CLI::App& c) {
  c.add_option("--device", device, "Where the model runs: this machine's processor, or its first CUDA device")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  c.add_flag("--unproven-kernels", unproven_kernels,
             "With --device cuda: also kernels that have not been checked on a device yet, for checking and timing them");
  c.add_option("--threads", threads, "CPU threads (default: all cores)")->check(CLI::Range(1, 1024));
  c.add_option("--isa", isa, "Instruction set of the CPU kernels (default: the widest of this machine)")
      ->check(CLI::IsMember({"plain", "avx2", "avx512", "amx"}));
  c.add_option("--dtype", dtype, "Activations; auto: float32 for a float32 checkpoint, else bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}));
  c.add_option("--kv-cache-dtype", kv_cache_dtype, "Latent rows; auto: as --dtype")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "fp8_e4m3"}));
  c.add_option("--index-dtype", index_dtype, "Pooled index keys; auto: as --dtype")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "fp8_e4m3"}));
  c.add_option("--state-dtype", state_dtype, "KDA state")->capture_default_str()->check(CLI::IsMember({"float32", "bfloat16"}));
  c.add_option("--activation-quant", activation_quant, "Inputs of FP8 matrices: as they are, or rounded to FP8 per 128 columns")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "fp8"}));
  c.add_option("--kda", kda, "Form of KDA prefill; chunked: results depend, to 1e-4, on where launches end")
      ->capture_default_str()
      ->check(CLI::IsMember({"recurrent", "chunked"}));
  c.add_option("--attention", attention, "Form of sparse attention")->capture_default_str()->check(CLI::IsMember({"absorbed", "expanded"}));
}

void ModelFlags::add_to(CLI::App& c) {
  constexpr int64_t kMost = int64_t{1} << 50;
  c.add_option(
       "--chunk", prefill_tokens,
       "Prompt tokens per launch, of all prompts together; with --state-dtype float32 and --kda recurrent results do not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  add_numerics_to(c);
  c.add_option("--memory", memory_bytes, "Bytes that weights and caches may take (default: nine tenths of what is available)")
      ->check(CLI::Range(int64_t{1}, kMost));
  c.add_option("--pool-tokens", pool_tokens,
               "Tokens that the page pool holds (default: what is left, at most the whole context of all that run)")
      ->check(CLI::Range(int64_t{1}, kMost));
  c.add_option("--snapshots", snapshots, "Recurrent states kept for cached prefixes (default: an eighth of the cache memory)")
      ->check(CLI::Range(0, 1 << 30));
  c.add_option("--host-memory", host_bytes, "Bytes for requests that gave way; without it they are computed again")
      ->check(CLI::Range(int64_t{0}, kMost));
  c.add_option("--speculative-algorithm", speculation.algorithm,
               "Who drafts: NEXTN (or EAGLE), the model's MTP layer; DFLASH, a draft model; the text is the same")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "NEXTN", "EAGLE", "DFLASH"}));
  c.add_option("--speculative-num-steps", speculation.steps, "Tokens drafted per sequence and cycle (default: 7)")
      ->check(CLI::Range(1, speculate::kMostDrafts));
  c.add_option("--speculative-num-draft-tokens", speculation.draft_tokens, "Rows verified: one more than the tokens drafted")
      ->check(CLI::Range(2, speculate::kMostDrafts + 1));
  c.add_option("--speculative-draft-model-path", speculation.draft_model, "Folder of the draft model of DFLASH");
  c.add_flag("--speculative-sampled-proposals", speculation.sampled_proposals,
             "Judge drafts of DFLASH by what they were drawn from, not by the target's own draw; where there is a temperature, "
             "another text of the same distribution");
  c.add_flag("--speculative-adaptive", speculation.adaptive, "Draft fewer tokens where that gives more per time");
}

Result<engine::LocalOptions> ModelFlags::local_options(const model::Checkpoint& checkpoint) const {
  engine::LocalOptions o;
  o.unproven_kernels = unproven_kernels;
  o.device = device == "cuda" ? engine::Device::kCuda : engine::Device::kCpu;
  o.backend.threads = threads > 0 ? threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  o.backend.isa = isa.empty() ? cpu::detect_isa() : *cpu::parse_isa(isa);
  if (o.backend.isa > cpu::detect_isa())
    return Error{Error::Kind::kUnsupported, fmt::format("this machine has no {} instructions; it offers up to {}",
                                                        cpu::isa_name(o.backend.isa), cpu::isa_name(cpu::detect_isa()))};
  const DType type = type_or(dtype, natural_type(checkpoint));
  o.numerics.activation = type;
  o.numerics.quant = activation_quant == "fp8" ? ops::ActivationQuant::kE4m3Block : ops::ActivationQuant::kNone;
  o.numerics.chunked_kda = kda == "chunked";
  o.numerics.expanded_attention = attention == "expanded";
  o.cache = {
      .activation = type, .state = kTypes.at(state_dtype), .latent = type_or(kv_cache_dtype, type), .index = type_or(index_dtype, type)};
  o.prefill_tokens = prefill_tokens;
  o.memory_bytes = memory_bytes;
  o.pool_tokens = pool_tokens;
  o.snapshots = snapshots;
  o.host_bytes = host_bytes;
  o.speculation = speculation;
  return o;
}

}  // namespace baton::app
