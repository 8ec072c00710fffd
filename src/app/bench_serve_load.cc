// The load of `bench serve`: from flags to data sets, and what servers tell beside their answers.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <cmath>
#include <cstdlib>

#include "app/bench_serve.h"
#include "app/json_members.h"
#include "app/validators.h"
#include "base/file.h"
#include "load/presets.h"
#include "load/trace.h"

namespace baton::app {
namespace {

namespace json = boost::json;

constexpr int64_t kFileLimit = int64_t{2} << 30;
constexpr int64_t kUsualPrompts = 100;

// vLLM spreads lengths by the ratio around the length, SGLang from the ratio of it up to it.
load::Range range_of(const BenchServeArguments& a) {
  if (!a.range_ratio) return {};
  if (a.backend.starts_with("sglang")) return {.low = *a.range_ratio, .high = 1};
  return {.low = 1 - *a.range_ratio, .high = 1 + *a.range_ratio};
}

std::optional<http::ClientResponse> get(const ChatEndpoint& endpoint, const std::string& target) {
  constexpr std::chrono::seconds kSilence(10);
  http::Client client(endpoint.client_options(kSilence));
  http::ClientRequest request = endpoint.request("");
  request.target = target;
  auto response = client.call(request);
  if (!response.ok() || response->status != 200) return std::nullopt;
  return std::move(*response);
}

// The sum over all labels of a counter in Prometheus' text; nothing if it does not come.
std::optional<double> counter(std::string_view text, std::string_view name) {
  std::optional<double> sum;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.starts_with(name) || line.size() == name.size()) continue;
    const char after = line[name.size()];
    const size_t space = line.rfind(' ');
    if ((after != ' ' && after != '{') || space == std::string_view::npos) continue;
    sum = sum.value_or(0) + std::strtod(std::string(line.substr(space + 1)).c_str(), nullptr);
  }
  return sum;
}

std::string preset_list() {
  std::string out;
  for (const load::Preset& p : load::presets()) out += fmt::format("{}{} ({})", out.empty() ? "" : "; ", p.name, p.about);
  return out;
}

}  // namespace

void add_load_options(CLI::App& c, BenchServeArguments& a) {
  const CLI::Range count(int64_t{1}, int64_t{10'000'000}), tokens(int64_t{1}, int64_t{1} << 24), more(int64_t{0}, int64_t{1} << 24);
  const auto number = [&](const char* names, int64_t& value, const CLI::Range& range, const char* about) {
    c.add_option(names, value, about)->check(range)->capture_default_str();
  };
  std::vector<std::string> names;
  for (const load::Preset& p : load::presets()) names.emplace_back(p.name);
  c.add_option("--workload", a.workload, "A load with a name, instead of a data set: " + preset_list())->check(CLI::IsMember(names));
  c.add_option("--dataset-name,--dataset", a.dataset, "Where prompts come from; mooncake and custom are JSON lines in --dataset-path")
      ->check(CLI::IsMember({"random", "random-ids", "generated-shared-prefix", "prefix_repetition", "agents", "mooncake", "custom"}))
      ->capture_default_str();
  c.add_option("--dataset-path", a.dataset_path, "File of the data set");
  c.add_option("--num-prompts", a.prompts, "Requests of a run; by default 100, or what the data set holds")->check(count);
  number("--random-input-len,--random-input,--input-len", a.input, tokens, "random: tokens of a prompt");
  number("--random-output-len,--random-output,--output-len", a.output, tokens, "random, custom: tokens of an answer");
  number("--random-prefix-len", a.prefix, more, "random: tokens before them that all prompts share");
  c.add_option_function<double>(
       "--random-range-ratio,--gsp-range-ratio", [&a](const double& r) { a.range_ratio = r; },
       "Lengths vary: by this part up and down (vLLM's meaning), with --backend sglang-... from this part up to the whole (SGLang's)")
      ->check(between(0, 1, "a number from 0 to 1"));
  number("--gsp-num-groups,--prefix-repetition-num-prefixes", a.shared.groups, count, "generated-shared-prefix: prefixes");
  number("--gsp-prompts-per-group", a.shared.per_group, count,
         "... prompts with each, unless --num-prompts says how many there are in all");
  number("--gsp-system-prompt-len,--prefix-repetition-prefix-len", a.shared.prefix, more, "... tokens of a prefix");
  number("--gsp-question-len,--prefix-repetition-suffix-len", a.shared.question, tokens, "... tokens behind it");
  number("--gsp-output-len,--prefix-repetition-output-len", a.shared.output, tokens, "... tokens of an answer");
  number("--gsp-num-turns", a.shared.turns, CLI::Range(1, 1000), "... turns of a conversation");
  c.add_option("--gsp-group-distribution", a.distribution, "... how often each prefix comes")
      ->check(CLI::IsMember({"uniform", "zipf"}))
      ->capture_default_str();
  c.add_option("--gsp-zipf-alpha", a.zipf, "... exponent of zipf")->check(between(1e-3, 100, "a number above 0"))->capture_default_str();
  c.add_flag("--gsp-ordered", a.shared.ordered, "... group by group, not shuffled");
  number("--agents", a.agents.agents, count, "agents: how many");
  number("--agent-turns", a.agents.turns, CLI::Range(1, 1000), "... turns of each");
  number("--agent-system-len", a.agents.system, more, "... tokens of the system prompt and tools that all share");
  number("--agent-task-len", a.agents.task, tokens, "... tokens of an agent's task");
  number("--agent-result-len", a.agents.result, tokens, "... tokens of a tool's result");
  number("--agent-output-len", a.agents.output, tokens, "... tokens that the model writes each turn");
  c.add_option("--agent-delay", a.agents.delay_s, "... seconds that a tool takes, in the mean")
      ->check(between(0, 1e6, "a number of seconds"))
      ->capture_default_str();
  c.add_flag("--use-trace-timestamps", a.trace_times, "mooncake: send at the trace's times");
  c.add_option("--mooncake-slowdown-factor", a.slowdown, "... multiplied by this")->check(between(1e-6, 1e6, "a number above 0"));
  number("--mooncake-block", a.block, tokens, "... tokens that a hash id stands for");
  c.add_option("--vocab-size", a.vocabulary.count, "Token ids are drawn from so many")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  c.add_option("--first-token-id", a.vocabulary.first, "... from this one on")->check(CLI::Range(0, 1 << 24))->capture_default_str();
  c.add_flag("--prompts-as-text", a.as_text, "Text completions get words, one for each token, instead of ids; chats always do");
}

Result<load::Workload> workload_of(const BenchServeArguments& a, uint64_t seed) {
  const int64_t prompts = a.prompts > 0 ? a.prompts : kUsualPrompts;
  if (const load::Preset* p = load::find_preset(a.workload); p != nullptr)
    return load::shared_prefixes(load::load_of(*p, a.prompts > 0 ? a.prompts : p->prompts, seed));
  if (a.dataset == "random" || a.dataset == "random-ids")
    return load::random_prompts(
        {.prompts = prompts, .input = a.input, .output = a.output, .prefix = a.prefix, .range = range_of(a), .seed = seed});
  if (a.dataset == "generated-shared-prefix" || a.dataset == "prefix_repetition") {
    load::SharedPrefixOptions o = a.shared;
    o.seed = seed;
    o.range = range_of(a);
    o.zipf = a.distribution == "zipf" ? a.zipf : 0;
    if (a.prompts > 0 && a.prompts % o.groups != 0)
      return Error{Error::Kind::kInvalid, fmt::format("--num-prompts {} cannot be divided among {} groups", a.prompts, o.groups)};
    if (a.prompts > 0) o.per_group = a.prompts / o.groups;
    return load::shared_prefixes(o);
  }
  if (a.dataset == "agents") {
    load::AgentOptions o = a.agents;
    o.seed = seed;
    o.range = range_of(a);
    return load::agents(o);
  }
  if (a.dataset_path.empty())
    return Error{Error::Kind::kInvalid, fmt::format("--dataset-name {} needs its file: --dataset-path FILE", a.dataset)};
  BATON_ASSIGN(const std::string text, read_file(a.dataset_path, kFileLimit));
  const load::TraceOptions o{.prompts = a.prompts, .slowdown = a.slowdown, .block = a.block, .output = a.output, .seed = seed};
  return a.dataset == "mooncake" ? load::mooncake_trace(text, a.dataset_path, o) : load::custom_prompts(text, a.dataset_path, o);
}

json::object load_json(const BenchServeArguments& a, uint64_t seed) {
  json::object o{{"seed", seed}, {"num_prompts", a.prompts}, {"chat", a.chat()}};
  if (!a.workload.empty()) {
    o["workload"] = a.workload;
    return o;
  }
  o["dataset"] = a.dataset;
  if (!a.dataset_path.empty()) o["dataset_path"] = a.dataset_path;
  const load::Range range = range_of(a);
  o["range"] = json::array{range.low, range.high};
  if (a.dataset.starts_with("random")) {
    o["input"] = a.input;
    o["output"] = a.output;
    o["prefix"] = a.prefix;
  } else if (a.dataset == "agents") {
    const load::AgentOptions& g = a.agents;
    o["agents"] = json::array{g.agents, g.turns, g.system, g.task, g.result, g.output, g.delay_s};
  } else if (a.dataset_path.empty()) {
    const load::SharedPrefixOptions& s = a.shared;
    o["shared_prefix"] = json::array{s.groups, s.per_group, s.prefix, s.question, s.output, s.turns, s.ordered};
    o["zipf"] = a.distribution == "zipf" ? a.zipf : 0;
  } else {
    o["slowdown"] = a.slowdown;
    o["block"] = a.block;
    o["output"] = a.output;
  }
  return o;
}

Result<load::Objective> objective_of(const BenchServeArguments& a) {
  load::Objective o;
  if (a.objective == "article") o = load::article_objective();
  for (const std::string& text : a.goodput) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    char* end = nullptr;
    const double ms = colon == std::string::npos ? 0 : std::strtod(text.c_str() + colon + 1, &end);
    auto* limit = name == "ttft" ? &o.ttft_s : name == "tpot" ? &o.tpot_s : name == "e2el" ? &o.e2e_s : nullptr;
    if (limit == nullptr || end == nullptr || *end != '\0' || !(ms > 0) || !std::isfinite(ms))
      return Error{Error::Kind::kInvalid,
                   fmt::format("--goodput {}: say ttft:MS, tpot:MS or e2el:MS, for instance ttft:6000 tpot:25", text)};
    *limit = ms / 1e3;
  }
  return o;
}

std::optional<SpeculationCount> speculation_of(const ChatEndpoint& endpoint) {
  const auto metrics = get(endpoint, "/metrics");
  if (!metrics) return std::nullopt;
  for (const auto& [blocks, accepted] : {std::pair{"baton_spec_blocks_total", "baton_spec_accepted_tokens_total"},
                                         std::pair{"vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total"}}) {
    const auto b = counter(metrics->body, blocks), t = counter(metrics->body, accepted);
    if (b && t) return SpeculationCount{*b, *t};
  }
  return std::nullopt;
}

std::optional<double> accepted_since_start(const ChatEndpoint& endpoint) {
  const auto info = get(endpoint, "/server_info");
  if (!info) return std::nullopt;
  boost::system::error_code failed;
  const json::value value = json::parse(info->body, failed);
  const json::value* length = failed ? nullptr : at(first_at(value.if_object(), "internal_states"), "avg_spec_accept_length");
  if (length == nullptr || !length->is_number()) return std::nullopt;
  const auto x = length->to_number<double>();
  return x > 0 ? std::optional(x) : std::nullopt;
}

Status flush_cache(const ChatEndpoint& endpoint) {
  constexpr std::chrono::seconds kSilence(60);
  http::Client client(endpoint.client_options(kSilence));
  http::ClientRequest request = endpoint.request("");
  request.target = "/flush_cache";
  request.method = "POST";
  const auto response = client.call(request);
  if (!response.ok()) return response.error();
  if (response->status != 200) return Error{Error::Kind::kInvalid, "--flush-cache: POST /flush_cache: " + message_of(*response)};
  return {};
}

}  // namespace baton::app
