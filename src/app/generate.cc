// baton generate: token ids in, token ids out, from one checkpoint on the CPU.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "app/commands.h"
#include "app/console.h"
#include "app/id_list.h"
#include "app/progress.h"
#include "app/validators.h"
#include "base/file.h"
#include "model/sequence_runner.h"
#include "ops/cpu/backend.h"

namespace baton::app {
namespace {

struct Arguments {
  std::string model;
  std::string prompt_ids;
  std::string prompt_file;
  int64_t max_tokens = 16;
  int64_t context = 0;  // 0: max_position_embeddings
  int64_t chunk = 512;
  float temperature = 0;
  float top_p = 1;
  uint64_t seed = 0;
  bool ignore_eos = false;
  std::string format = "text";
  int threads = 0;  // 0: as many as cores
  std::string isa;
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string index_dtype = "auto";
  std::string state_dtype = "float32";
  std::string activation_quant = "none";
  std::string kda = "recurrent";
  std::string attention = "absorbed";
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

const std::map<std::string, DType> kTypes = {{"float32", DType::kF32}, {"bfloat16", DType::kBF16}, {"fp8_e4m3", DType::kF8E4M3}};

DType type_or(const std::string& name, DType automatic) { return name == "auto" ? automatic : kTypes.at(name); }

// What `auto` means: float arithmetic for a float checkpoint, bfloat16 otherwise.
DType natural_type(const model::Checkpoint& checkpoint) {
  const model::TensorEntry* embed = checkpoint.find("model.language_model.embed_tokens.weight");
  return embed != nullptr && embed->dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
}

struct Timings {
  double load = 0;
  double prefill = 0;
  double decode = 0;
  int64_t decode_steps = 0;
};

struct Output {
  std::vector<int32_t> ids;
  bool stopped = false;
  Timings timings;
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t cache_bytes = 0;
};

std::string rate(int64_t tokens, double seconds) {
  return seconds > 0 ? fmt::format("{:.1f} tok/s", static_cast<double>(tokens) / seconds) : "-";
}

void print_text(const Output& o, int64_t prompt_tokens) {
  fmt::print("{}\n", fmt::join(o.ids, ","));
  std::fflush(stdout);
  const Timings& t = o.timings;
  const auto mega = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  print_error(fmt::format("load {:.3f} s ({:.1f} MB weights, {:.1f} MB caches, {:.1f} MB workspace)\n", t.load, mega(o.weight_bytes),
                          mega(o.cache_bytes), mega(o.workspace_bytes)));
  print_error(fmt::format("prefill {} tokens in {:.3f} s, {}\n", prompt_tokens, t.prefill, rate(prompt_tokens, t.prefill)));
  print_error(fmt::format("decode {} tokens in {:.3f} s, {}; finished: {}\n", t.decode_steps, t.decode, rate(t.decode_steps, t.decode),
                          o.stopped ? "stop" : "length"));
}

void print_json(const Output& o, int64_t prompt_tokens) {
  const Timings& t = o.timings;
  boost::json::object root;
  root["ids"] = boost::json::value_from(o.ids);
  root["finish_reason"] = o.stopped ? "stop" : "length";
  root["prompt_tokens"] = prompt_tokens;
  root["completion_tokens"] = o.ids.size();
  root["timings"] = {{"load_s", t.load},
                     {"prefill_s", t.prefill},
                     {"prefill_tokens_per_s", t.prefill > 0 ? static_cast<double>(prompt_tokens) / t.prefill : 0.0},
                     {"decode_s", t.decode},
                     {"decode_steps", t.decode_steps},
                     {"decode_tokens_per_s", t.decode > 0 ? static_cast<double>(t.decode_steps) / t.decode : 0.0}};
  root["memory"] = {{"weight_bytes", o.weight_bytes}, {"cache_bytes", o.cache_bytes}, {"workspace_bytes", o.workspace_bytes}};
  fmt::print("{}\n", boost::json::serialize(root));
}

Error invalid(std::string message) { return {Error::Kind::kInvalid, std::move(message)}; }

Result<std::vector<int32_t>> read_prompt(const Arguments& a) {
  if (a.prompt_file.empty()) return parse_id_list(a.prompt_ids, "--prompt-ids");
  constexpr int64_t kLimit = 64 << 20;
  BATON_ASSIGN(const std::string text, read_file(a.prompt_file, kLimit));
  return parse_id_list(text, a.prompt_file);
}

Status check_prompt(const std::vector<int32_t>& prompt, const model::Config& config, const Arguments& a) {
  if (prompt.empty()) return invalid("the prompt is empty; give at least one token id");
  for (size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= config.vocab_size)
      return invalid(fmt::format("prompt token {} (number {} of the prompt) is outside the vocabulary; ids go from 0 to {}", prompt[i],
                                 i + 1, config.vocab_size - 1));
  const int64_t limit = a.context > 0 ? a.context : config.max_position_embeddings;
  const auto n = static_cast<int64_t>(prompt.size());
  if (a.context > config.max_position_embeddings)
    return invalid(
        fmt::format("--context {} exceeds the model's {} positions (max_position_embeddings)", a.context, config.max_position_embeddings));
  if (n + a.max_tokens > limit)
    return invalid(
        fmt::format("{} prompt tokens and {} to generate exceed the context of {} tokens; shorten the prompt or lower --max-tokens", n,
                    a.max_tokens, limit));
  return {};
}

model::ModelOptions model_options(const Arguments& a, const model::Checkpoint& checkpoint, int64_t tokens, int threads) {
  model::ModelOptions o;
  const DType type = type_or(a.dtype, natural_type(checkpoint));
  o.numerics.activation = type;
  o.numerics.quant = a.activation_quant == "fp8" ? ops::ActivationQuant::kE4m3Block : ops::ActivationQuant::kNone;
  o.numerics.chunked_kda = a.kda == "chunked";
  o.numerics.expanded_attention = a.attention == "expanded";
  o.cache = {.activation = type,
             .state = kTypes.at(a.state_dtype),
             .latent = type_or(a.kv_cache_dtype, type),
             .index = type_or(a.index_dtype, type)};
  o.max_rows = std::min(a.chunk, tokens);
  o.max_logits_rows = 1;
  o.max_sequences = 1;
  o.max_pages = (tokens + ops::kPageTokens - 1) / ops::kPageTokens;
  o.loading.threads = threads;
  return o;
}

Status decode(model::SequenceRunner& runner, const Arguments& a, const std::vector<int32_t>& prompt, Output& out) {
  const model::Config& config = runner.model().config();
  Progress progress("prefill", static_cast<int64_t>(prompt.size()));
  const Clock::time_point start = Clock::now();
  MatrixView hidden;
  for (size_t first = 0; first < prompt.size();) {
    const size_t count = std::min(static_cast<size_t>(a.chunk), prompt.size() - first);
    const model::SequenceRunner::Rows rows{0, std::span(prompt).subspan(first, count), false};
    hidden = runner.forward({&rows, 1});
    first += count;
    progress.update(static_cast<int64_t>(first));
  }
  ops::SamplingRow sampling{a.temperature, a.top_p, a.seed, static_cast<int32_t>(prompt.size())};
  const auto emit = [&]() -> Status {
    const int32_t token = runner.sample(hidden, sampling);
    if (token < 0)
      return Error{Error::Kind::kInvalid, fmt::format("the logits of position {} are not numbers; {} is damaged or holds values beyond {}",
                                                      sampling.position, a.model, dtype_name(runner.model().numerics().activation))};
    out.ids.push_back(token);
    out.stopped = !a.ignore_eos && std::find(config.eos_token_ids.begin(), config.eos_token_ids.end(), token) != config.eos_token_ids.end();
    ++sampling.position;
    return {};
  };
  BATON_TRY(emit());
  out.timings.prefill = seconds_since(start);
  progress.restart("decode", a.max_tokens);
  const Clock::time_point decode_start = Clock::now();
  while (!out.stopped && static_cast<int64_t>(out.ids.size()) < a.max_tokens) {
    const int32_t token = out.ids.back();
    const model::SequenceRunner::Rows rows{0, {&token, 1}, false};
    hidden = runner.forward({&rows, 1});
    BATON_TRY(emit());
    ++out.timings.decode_steps;
    progress.update(static_cast<int64_t>(out.ids.size()));
  }
  out.timings.decode = seconds_since(decode_start);
  return {};
}

Status generate(const Arguments& a) {
  const Clock::time_point start = Clock::now();
  BATON_ASSIGN(const std::vector<int32_t> prompt, read_prompt(a));
  BATON_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(a.model));
  BATON_TRY(check_prompt(prompt, checkpoint.config(), a));
  const int threads = a.threads > 0 ? a.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const cpu::Isa isa = a.isa.empty() ? cpu::detect_isa() : *cpu::parse_isa(a.isa);
  if (isa > cpu::detect_isa())
    return Error{Error::Kind::kUnsupported, fmt::format("this machine has no {} instructions; it offers up to {}", cpu::isa_name(isa),
                                                        cpu::isa_name(cpu::detect_isa()))};
  cpu::CpuBackend backend({.threads = threads, .isa = isa});
  const int64_t tokens = static_cast<int64_t>(prompt.size()) + a.max_tokens;
  model::ModelOptions options = model_options(a, checkpoint, tokens, threads);
  BATON_ASSIGN(const auto model, model::Glm5Next::load(checkpoint, backend, options));
  BATON_ASSIGN(model::SequenceRunner runner, model::SequenceRunner::create(*model, backend, 1, tokens, options.max_rows));
  Output out;
  out.timings.load = seconds_since(start);
  out.weight_bytes = model->weight_bytes();
  out.workspace_bytes = model->workspace_bytes();
  out.cache_bytes = runner.cache_bytes();
  BATON_TRY(decode(runner, a, prompt, out));
  if (a.format == "json")
    print_json(out, static_cast<int64_t>(prompt.size()));
  else
    print_text(out, static_cast<int64_t>(prompt.size()));
  return {};
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("generate", "Generate token ids from a prompt of token ids");
  c->add_option("--model", a->model, "Checkpoint folder (config.json and safetensors)")->required();
  CLI::Option* ids = c->add_option("--prompt-ids", a->prompt_ids, "Prompt as ids separated by commas or spaces");
  CLI::Option* file = c->add_option("--prompt-ids-file", a->prompt_file, "File with the same (or a JSON list of ids)")->excludes(ids);
  c->add_option("--max-tokens", a->max_tokens, "Tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  c->add_option("--context", a->context, "Refuse prompts that need more tokens than this (default: the model's max_position_embeddings)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  c->add_option("--chunk", a->chunk, "Prompt tokens per launch; with --state-dtype float32 results do not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  c->add_option("--temperature", a->temperature, "0: the most likely token")
      ->capture_default_str()
      ->check(between(0, 100, "a number from 0 to 100"));
  c->add_option("--top-p", a->top_p, "Smallest set of likely tokens with this probability")
      ->capture_default_str()
      ->check(between(1e-6, 1, "a number above 0 and at most 1"));
  c->add_option("--seed", a->seed, "Seed of sampled tokens")->capture_default_str()->check(whole_number_64());
  c->add_flag("--ignore-eos", a->ignore_eos, "Go on after an end token");
  c->add_option("--format", a->format, "Output")->capture_default_str()->check(CLI::IsMember({"text", "json"}));
  c->add_option("--threads", a->threads, "CPU threads (default: all cores)")->check(CLI::Range(1, 1024));
  c->add_option("--isa", a->isa, "Instruction set of the CPU kernels (default: the widest of this machine)")
      ->check(CLI::IsMember({"plain", "avx2", "avx512", "amx"}));
  c->add_option("--dtype", a->dtype, "Activations; auto: float32 for a float32 checkpoint, else bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}));
  c->add_option("--kv-cache-dtype", a->kv_cache_dtype, "Latent rows; auto: as --dtype")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "fp8_e4m3"}));
  c->add_option("--index-dtype", a->index_dtype, "Pooled index keys; auto: as --dtype")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "fp8_e4m3"}));
  c->add_option("--state-dtype", a->state_dtype, "KDA state")->capture_default_str()->check(CLI::IsMember({"float32", "bfloat16"}));
  c->add_option("--activation-quant", a->activation_quant, "Inputs of FP8 matrices: as they are, or rounded to FP8 per 128 columns")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "fp8"}));
  c->add_option("--kda", a->kda, "Form of KDA prefill")->capture_default_str()->check(CLI::IsMember({"recurrent", "chunked"}));
  c->add_option("--attention", a->attention, "Form of sparse attention")
      ->capture_default_str()
      ->check(CLI::IsMember({"absorbed", "expanded"}));
  c->callback([a, ids, file, &exit_code] {
    if (ids->count() + file->count() == 0) throw CLI::RequiredError("--prompt-ids or --prompt-ids-file");
    exit_code = finish(generate(*a));
  });
}

}  // namespace baton::app
