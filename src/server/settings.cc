#include "server/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/file.h"

namespace baton::server {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 50;

std::vector<Setting> make_table() {
  using S = Settings;
  return {
      {"Model", "model", &S::model, "Folder with config.json, safetensors, tokenizer.json and a chat template", {"model-path"}},
      {"Model", "served-model-name", &S::served_names, "Names under which requests find the model; the folder's name if none is given"},
      {"Model", "tokenizer", &S::tokenizer, "Folder or tokenizer.json, where it is not in the model's folder", {"tokenizer-path"}},
      {"Model", "chat-template", &S::chat_template, "File with another chat template than the model's"},
      {"Model", "tool-call-parser", &S::tool_parser, "Markup of tool calls; auto: by the model", {}, {"auto", "glm45", "glm47"}},
      {"Model", "reasoning-parser", &S::reasoning_parser, "Markup of reasoning; auto: by the model", {}, {"auto", "glm45"}},
      {"Model",
       "reasoning-field",
       &S::reasoning_field,
       "Field of chat answers that holds reasoning",
       {},
       {"reasoning_content", "reasoning"}},
      {"Model", "enable-auto-tool-choice", &S::auto_tool_choice, "Accepted for compatibility; tools are always offered to the model"},
      {"Model", "trust-assistant", &S::trust_assistant, "Let the text of assistant messages become special tokens"},

      {"Engine",
       "max-model-len",
       &S::context_tokens,
       "Tokens of prompt and answer together; 0: the model's own limit",
       {"context-length"},
       {},
       0,
       int64_t{1} << 40},
      {"Engine", "max-num-seqs", &S::running, "Requests (choices, exactly) that run at once", {"max-running-requests"}, {}, 1, 1 << 16},
      {"Engine",
       "max-num-batched-tokens",
       &S::prefill_tokens,
       "Prompt tokens per cycle, of all prompts together",
       {"chunked-prefill-size"},
       {},
       1,
       1 << 20},
      {"Engine", "threads", &S::threads, "CPU threads; 0: all cores", {}, {}, 0, 1024},
      {"Engine",
       "isa",
       &S::isa,
       "Instruction set of the CPU kernels; auto: the widest of the machine",
       {},
       {"auto", "plain", "avx2", "avx512", "amx"}},
      {"Engine",
       "dtype",
       &S::dtype,
       "Activations; auto: float32 for a float32 checkpoint, else bfloat16",
       {},
       {"auto", "float32", "bfloat16"}},
      {"Engine", "kv-cache-dtype", &S::kv_cache_dtype, "Latent rows; auto: as dtype", {}, {"auto", "float32", "bfloat16", "fp8_e4m3"}},
      {"Engine", "index-dtype", &S::index_dtype, "Pooled index keys; auto: as dtype", {}, {"auto", "float32", "bfloat16", "fp8_e4m3"}},
      {"Engine", "state-dtype", &S::state_dtype, "KDA state", {"mamba-ssm-cache-dtype"}, {"float32", "bfloat16"}},
      {"Engine", "activation-quant", &S::activation_quant, "Inputs of FP8 matrices: as they are, or rounded to FP8", {}, {"none", "fp8"}},
      {"Engine",
       "kda",
       &S::kda,
       "Form of KDA prefill; chunked: the same request may be answered otherwise beside others",
       {},
       {"recurrent", "chunked"}},
      {"Engine", "attention", &S::attention, "Form of sparse attention", {}, {"absorbed", "expanded"}},
      {"Engine", "memory", &S::memory_bytes, "Bytes of weights and caches; 0: nine tenths of what is available", {}, {}, 0, kMostBytes},
      {"Engine",
       "pool-tokens",
       &S::pool_tokens,
       "Tokens that the page pool holds; 0: what the memory gives",
       {"max-total-tokens"},
       {},
       0,
       kMostBytes},
      {"Engine",
       "snapshots",
       &S::snapshots,
       "Recurrent states kept for cached prefixes; -1: an eighth of the cache memory",
       {},
       {},
       -1,
       1 << 30},
      {"Engine",
       "host-memory",
       &S::host_bytes,
       "Bytes for requests that gave way to others; 0: they are computed again",
       {},
       {},
       0,
       kMostBytes},
      {"Engine", "enable-prefix-caching", &S::prefix_caching, "Share the beginnings of prompts", {"!disable-radix-cache"}},
      {"Engine",
       "speculative-algorithm",
       &S::speculative_algorithm,
       "Who drafts: the model's MTP layer (NEXTN, EAGLE) or a draft model (DFLASH); texts are the same",
       {},
       {"none", "NEXTN", "EAGLE", "DFLASH"}},
      {"Engine", "speculative-num-steps", &S::speculative_steps, "Tokens drafted per choice and cycle; 0: 7", {}, {}, 0, 15},
      {"Engine",
       "speculative-num-draft-tokens",
       &S::speculative_draft_tokens,
       "Rows verified, one more than the tokens drafted; 0: as the steps say",
       {},
       {},
       0,
       16},
      {"Engine", "speculative-draft-model-path", &S::speculative_draft_model, "Folder of the draft model of DFLASH"},
      {"Engine", "speculative-adaptive", &S::speculative_adaptive, "Draft fewer tokens where that gives more per time"},
      {"Engine", "speculative-sampled-proposals", &S::speculative_sampled_proposals,
       "Judge drafts of DFLASH by what they were drawn from; where there is a temperature, another text of the same distribution"},
      {"Engine", "tensor-parallel-size", &S::tensor_parallel, "Devices; more than one is not there yet", {"tp", "tp-size"}, {}, 1, 1},
      {"Engine", "data-parallel-size", &S::data_parallel, "Engines; more than one is not there yet", {"dp", "dp-size"}, {}, 1, 1},

      {"Fleet",
       "role",
       &S::role,
       "prefill computes prompts for decode instances, which answer requests; unified (null) does both",
       {"disaggregation-mode"},
       {"unified", "prefill", "decode", "null"}},
      {"Fleet", "prefill", &S::prefills, "URLs of prefill instances that a decode instance orders from, besides those that a router names"},
      {"Fleet",
       "transfer-backend",
       &S::transfer_backend,
       "How pages get from prefill to decode: NIXL, or copies between processes of one machine; auto: NIXL where it is installed",
       {"disaggregation-transfer-backend"},
       {"auto", "nixl", "same-host"}},
      {"Fleet",
       "prefill-timeout-ms",
       &S::prefill_timeout_ms,
       "Silence of a prefill instance after which its prompts are ordered elsewhere; and how long requests wait while none is there",
       {},
       {},
       100,
       3'600'000},
      {"Fleet", "fleet-url", &S::own_url, "How other instances call this one, if not at its port of the address that its calls come from"},
      {"Fleet", "fleet-secret-file", &S::fleet_secret_file,
       "File with the secret that router and instances share: then requests are taken from them alone. Needed to listen beyond this "
       "machine "
       "as prefill or decode, unless clients show certificates (ssl-ca-certs)"},
      {"Fleet", "fleet-ca-certs", &S::fleet_ca,
       "PEM: who signs the certificates of other instances; those that the system trusts if empty"},
      {"Fleet", "fleet-certfile", &S::fleet_certificate, "PEM certificate that is shown to other instances"},
      {"Fleet", "fleet-keyfile", &S::fleet_key, "PEM key of that certificate"},

      {"Listener", "host", &S::host, "Address to listen at; 0.0.0.0 for all"},
      {"Listener", "port", &S::port, "Port; 0: any free one", {}, {}, 0, 65535},
      {"Listener", "ssl-certfile", &S::tls_certificate, "PEM certificate chain: serve https. Read again on SIGHUP"},
      {"Listener", "ssl-keyfile", &S::tls_key, "PEM key of the certificate"},
      {"Listener", "ssl-ca-certs", &S::tls_client_ca, "PEM: ask clients for a certificate of this authority"},
      {"Listener", "api-key", &S::api_keys, "Keys that clients may use; other people on the machine can read a command line"},
      {"Listener", "api-key-file", &S::api_key_file,
       "File with a line `name sha256-of-the-key [admin]` for each key. Read again on SIGHUP"},
      {"Listener", "allowed-origins", &S::allowed_origins, "Origins of web pages that may call (CORS); * for all, none by default"},
      {"Listener", "web-page", &S::web_page, "The page at /, with a chat and the metrics", {"!no-webui"}},

      {"Limits", "max-queued-requests", &S::queued, "Requests that wait while as many as may run do; beyond it: 429", {}, {}, 0, 1 << 20},
      {"Limits", "max-connections", &S::connections, "Connections at once", {}, {}, 1, 1 << 20},
      {"Limits", "max-body-bytes", &S::body_bytes, "Longest body of a request; beyond it: 413", {}, {}, 1024, int64_t{1} << 30},
      {"Limits", "max-header-bytes", &S::header_bytes, "Longest head of a request; beyond it: 431", {}, {}, 1024, 1 << 20},
      {"Limits",
       "max-stream-bytes",
       &S::stream_bytes,
       "What may wait for a slow reader of a stream; beyond it the request is cancelled",
       {},
       {},
       4096,
       int64_t{1} << 30},
      {"Limits",
       "max-answer-bytes",
       &S::answer_bytes,
       "Answers that are kept until they are complete, together; beyond it: 503",
       {},
       {},
       int64_t{1} << 16,
       kMostBytes},
      {"Limits", "max-choices", &S::choices, "Largest n of a request, which is also at most --max-num-seqs", {}, {}, 1, 1024},
      {"Limits",
       "request-timeout-ms",
       &S::request_timeout_ms,
       "Time that a request may take with its wait; 0: any. A client asks for less with x-request-timeout-ms",
       {},
       {},
       0,
       int64_t{1} << 40},
      {"Limits",
       "keep-alive-timeout",
       &S::keep_alive_s,
       "Seconds that an idle connection stays open",
       {"timeout-keep-alive"},
       {},
       1,
       86400},
      {"Limits", "ping-interval", &S::ping_s, "Seconds of silence after which a stream carries a comment", {}, {}, 1, 86400},
      {"Limits",
       "shutdown-timeout",
       &S::shutdown_s,
       "Seconds that requests have to end after SIGTERM; a second one ends them at once",
       {},
       {},
       0,
       86400},
      {"Limits",
       "stall-timeout",
       &S::stall_s,
       "Seconds without a finished cycle, while there is work, after which /readyz says no",
       {},
       {},
       1,
       86400},
      {"Limits", "strict-requests", &S::strict, "Refuse requests with unknown fields instead of naming them in x-ignored-fields"},

      {"Process", "http-threads", &S::http_threads, "Threads that read and write connections", {}, {}, 1, 64},
      {"Process", "output-threads", &S::output_threads, "Threads that turn tokens into text", {}, {}, 1, 64},
      {"Process",
       "prepare-threads",
       &S::prepare_threads,
       "Threads that read, render and tokenise requests",
       {"tokenizer-worker-num"},
       {},
       1,
       64},
      {"Process", "grammar-workers", &S::grammar_workers, "Schemas that are compiled at once", {}, {}, 1, 64},
      {"Process", "metrics-compat", &S::metrics_compat, "vllm: /metrics also carries vLLM's names", {}, {"none", "vllm"}},
      {"Process", "log-level", &S::log_level, "Least severity that is logged", {}, {"debug", "info", "warning", "error"}},
      {"Process", "log-requests", &S::log_requests, "A line for each request that ended", {"enable-log-requests", "!disable-log-requests"}},
  };
}

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

Error invalid(std::string message) { return {Error::Kind::kInvalid, std::move(message)}; }

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> out;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (!item.empty()) out.emplace_back(item);
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

std::string yaml_text(std::string_view value) {
  YAML::Emitter e;
  e << YAML::DoubleQuoted << std::string(value);
  return e.c_str();
}

std::string yaml_value(const Settings& settings, const Setting& s) {
  if (const auto* text = std::get_if<std::string Settings::*>(&s.member)) return yaml_text(settings.**text);
  if (const auto* list = std::get_if<std::vector<std::string> Settings::*>(&s.member)) {
    std::vector<std::string> items;
    for (const std::string& item : settings.**list) items.push_back(yaml_text(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  return text_of(settings, s);
}

size_t place_of(const Setting& s) { return static_cast<size_t>(&s - all_settings().data()); }

struct Loader {
  LoadedSettings out;
  // Lists of one source replace those of a lower one, and grow within it.
  std::vector<bool> seen;

  void begin_source() { seen.assign(all_settings().size(), false); }

  Status take(std::string_view name, std::string_view value, Origin origin, const std::string& where) {
    bool opposite = false;
    const Setting* s = find_setting(name, &opposite);
    if (s == nullptr) return invalid(fmt::format("{}: there is no setting of this name; baton serve --help lists them", where));
    const size_t place = place_of(*s);
    // Given but empty, as from a variable that is not set: to go on would open the server to everybody.
    if (s->name == std::string_view("api-key") && split_list(value).empty())
      return invalid(fmt::format("{}: the key is empty; give one, or leave it out for a server that asks for none", where));
    const bool text = std::holds_alternative<std::string Settings::*>(s->member) || s->repeats();
    if (text && split_list(value).empty() && (origin != Origin::kFile || !text_of({}, *s).empty()))
      return invalid(fmt::format("{}: is empty; give a value, or leave it out", where));
    if (opposite) {
      Settings switched;
      BATON_TRY(assign(switched, *s, value, where));
      const auto member = std::get<bool Settings::*>(s->member);
      out.values.*member = !(switched.*member);
    } else if (s->repeats() && seen[place]) {
      const auto member = std::get<std::vector<std::string> Settings::*>(s->member);
      for (std::string& item : split_list(value)) (out.values.*member).push_back(std::move(item));
    } else {
      BATON_TRY(assign(out.values, *s, value, where));
    }
    seen[place] = true;
    out.origins[place] = origin;
    return {};
  }
};

Status read_yaml(const std::string& file, Loader& loader) {
  constexpr int64_t kMostFileBytes = 1 << 20;
  BATON_ASSIGN(const std::string text, read_file(file, kMostFileBytes));
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& e) {
    return invalid(fmt::format("{}:{}: {}", file, e.mark.line + 1, e.msg));
  }
  if (root.IsNull()) return {};
  if (!root.IsMap()) return invalid(fmt::format("{}: lines of `name: value` are expected", file));
  std::set<std::string> names;
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) return invalid(fmt::format("{}:{}: a name is expected", file, entry.first.Mark().line + 1));
    std::string name = entry.first.Scalar();
    const std::string where = fmt::format("{}:{}: {}", file, entry.first.Mark().line + 1, name);
    std::replace(name.begin(), name.end(), '_', '-');
    const Setting* s = find_setting(name);
    if (!names.insert(s != nullptr ? std::string(s->name) : name).second)
      return invalid(fmt::format("{}: stands there twice{}; the value would be either", where,
                                 s != nullptr && s->name != name ? fmt::format(", once as {}", s->name) : ""));
    const YAML::Node& value = entry.second;
    if (value.IsScalar()) {
      BATON_TRY(loader.take(name, value.Scalar(), Origin::kFile, where));
    } else if (value.IsSequence()) {
      if (s != nullptr && !s->repeats()) return invalid(fmt::format("{}: one value is expected, not a list", where));
      if (value.size() == 0) BATON_TRY(loader.take(name, "", Origin::kFile, where));
      for (const auto& item : value) {
        if (!item.IsScalar()) return invalid(fmt::format("{}: a list of plain values is expected", where));
        BATON_TRY(loader.take(name, item.Scalar(), Origin::kFile, where));
      }
    } else if (value.IsNull()) {
      return invalid(fmt::format("{}: a value is missing", where));
    } else {
      return invalid(fmt::format("{}: a value or a list is expected", where));
    }
  }
  return {};
}

}  // namespace

std::string_view name_of(Origin origin) {
  switch (origin) {
    case Origin::kDefault: return "default";
    case Origin::kFile: return "file";
    case Origin::kEnvironment: return "environment";
    case Origin::kFlag: return "flag";
  }
  return "";
}

std::span<const Setting> all_settings() {
  static const std::vector<Setting> table = make_table();
  return table;
}

const Setting* find_setting(std::string_view name, bool* opposite) {
  if (opposite != nullptr) *opposite = false;
  for (const Setting& s : all_settings()) {
    if (s.name == name) return &s;
    if (s.is_switch() && name.starts_with("no-") && name.substr(3) == s.name) {
      if (opposite != nullptr) *opposite = true;
      return &s;
    }
    for (const std::string_view alias : s.aliases) {
      const bool negative = alias.front() == '!';
      if (alias.substr(negative ? 1 : 0) != name) continue;
      if (opposite != nullptr) *opposite = negative;
      return &s;
    }
  }
  return nullptr;
}

std::string environment_name(const Setting& setting) {
  std::string out = "BATON_";
  for (const char c : setting.name) out += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

Status assign(Settings& settings, const Setting& s, std::string_view text, const std::string& where) {
  return std::visit(Overload{[&](std::string Settings::*member) -> Status {
                               if (!s.words.empty() && std::find(s.words.begin(), s.words.end(), text) == s.words.end())
                                 return invalid(fmt::format("{}: {} is none of {}", where, text, fmt::join(s.words, ", ")));
                               settings.*member = text;
                               return {};
                             },
                             [&](int64_t Settings::*member) -> Status {
                               int64_t value = 0;
                               const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
                               if (error != std::errc() || end != text.data() + text.size() || value < s.least || value > s.most)
                                 return invalid(fmt::format("{}: {} is not a whole number from {} to {}", where, text, s.least, s.most));
                               settings.*member = value;
                               return {};
                             },
                             [&](bool Settings::*member) -> Status {
                               const bool yes = text == "true" || text == "1" || text == "yes" || text == "on";
                               if (!yes && text != "false" && text != "0" && text != "no" && text != "off")
                                 return invalid(fmt::format("{}: {} is neither true nor false", where, text));
                               settings.*member = yes;
                               return {};
                             },
                             [&](std::vector<std::string> Settings::*member) -> Status {
                               settings.*member = split_list(text);
                               return {};
                             }},
                    s.member);
}

std::string text_of(const Settings& settings, const Setting& s) {
  return std::visit(
      Overload{[&](std::string Settings::*member) { return settings.*member; },
               [&](int64_t Settings::*member) { return fmt::format("{}", settings.*member); },
               [&](bool Settings::*member) { return std::string(settings.*member ? "true" : "false"); },
               [&](std::vector<std::string> Settings::*member) { return fmt::format("{}", fmt::join(settings.*member, ",")); }},
      s.member);
}

Result<LoadedSettings> load_settings(const SettingSources& sources) {
  Loader loader;
  loader.out.origins.assign(all_settings().size(), Origin::kDefault);
  if (!sources.file.empty()) {
    loader.begin_source();
    BATON_TRY(read_yaml(sources.file, loader));
  }
  loader.begin_source();
  for (const Setting& s : all_settings())
    if (const auto value = sources.environment(environment_name(s)))
      BATON_TRY(loader.take(s.name, *value, Origin::kEnvironment, environment_name(s)));
  loader.begin_source();
  for (const auto& [name, value] : sources.flags) BATON_TRY(loader.take(name, value, Origin::kFlag, "--" + name));
  return std::move(loader.out);
}

std::string dump(const LoadedSettings& settings, bool with_origins) {
  std::string out;
  std::string_view group;
  for (const Setting& s : all_settings()) {
    if (s.group != group) out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", group = s.group);
    const bool secret = s.name == "api-key";
    std::string line = secret ? fmt::format("# api-key: {} given, not shown", settings.values.api_keys.size())
                              : fmt::format("{}: {}", s.name, yaml_value(settings.values, s));
    if (with_origins) line += fmt::format("{:{}}# {}", "", line.size() < 60 ? 60 - line.size() : 1, name_of(settings.origins[place_of(s)]));
    out += line + "\n";
  }
  return out;
}

std::string settings_page() {
  const Settings defaults;
  std::string out =
      "# Settings of `baton serve`\n\n"
      "Each is a flag (`--name value`), a key of the YAML file that `--config` names (`name: value`), and an environment variable. A flag "
      "wins\n"
      "over the environment, that over the file, that over the default; `baton config dump --origin` shows what came from where. Switches "
      "have\n"
      "a `--no-` form. This page is made by `baton config page` from the table in `src/server/settings.cc`.\n";
  std::string_view group;
  for (const Setting& s : all_settings()) {
    if (s.group != group) out += fmt::format("\n## {}\n\n| flag | environment | default | |\n|---|---|---|---|\n", group = s.group);
    std::string flags = fmt::format("`--{}`", s.name);
    for (const std::string_view alias : s.aliases)
      flags += alias.front() == '!' ? fmt::format(", `--{}` (the opposite)", alias.substr(1)) : fmt::format(", `--{}`", alias);
    std::string value = text_of(defaults, s);
    if (!value.empty()) value = "`" + value + "`";
    std::string doc(s.doc);
    if (!s.words.empty()) doc += fmt::format(" ({})", fmt::join(s.words, ", "));
    out += fmt::format("| {} | `{}` | {} | {} |\n", flags, environment_name(s), value, doc);
  }
  return out;
}

}  // namespace baton::server
