// Everything that can be set about a server, in one table: flag, aliases, environment twin, YAML key and doc text of each setting.
//
// A flag wins over the environment, that over the file, that over the default; where a value came from is remembered.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace baton::server {

struct Settings {
  // What is served.
  std::string model;                      // folder with config.json, safetensors, tokenizer.json and a chat template
  std::vector<std::string> served_names;  // the first is the one in answers; empty: the folder's name
  std::string tokenizer;                  // empty: the model's folder
  std::string chat_template;              // empty: the model's own
  std::string tool_parser = "auto";
  std::string reasoning_parser = "auto";
  std::string reasoning_field = "reasoning_content";
  bool auto_tool_choice = true;
  bool trust_assistant = false;

  // How it is computed.
  int64_t context_tokens = 0;  // 0: the model's own
  int64_t running = 16;
  int64_t prefill_tokens = 512;
  int64_t threads = 0;  // 0: all cores
  std::string isa = "auto";
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string index_dtype = "auto";
  std::string state_dtype = "float32";
  std::string activation_quant = "none";
  std::string kda = "recurrent";
  std::string attention = "absorbed";
  int64_t memory_bytes = 0;  // 0: nine tenths of what is available
  int64_t pool_tokens = 0;   // 0: what the memory gives
  int64_t snapshots = -1;    // -1: an eighth of the cache memory
  int64_t host_bytes = 0;
  bool prefix_caching = true;
  std::string speculative_algorithm = "none";
  int64_t speculative_steps = 0;         // 0: as many as the drafter usually does
  int64_t speculative_draft_tokens = 0;  // likewise
  std::string speculative_draft_model;
  bool speculative_adaptive = false;
  bool speculative_sampled_proposals = false;
  int64_t tensor_parallel = 1;
  int64_t data_parallel = 1;

  // What it is among others.
  std::string role = "unified";
  std::vector<std::string> prefills;  // of a decode instance: URLs
  std::string transfer_backend = "auto";
  int64_t prefill_timeout_ms = 10'000;
  std::string own_url;
  std::string fleet_secret_file;
  std::string fleet_ca, fleet_certificate, fleet_key;

  // Where it listens.
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string tls_certificate, tls_key, tls_client_ca;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> allowed_origins;
  bool web_page = true;

  // What it bears.
  int64_t queued = 1024;
  int64_t connections = 16384;
  int64_t body_bytes = int64_t{16} << 20;
  int64_t header_bytes = int64_t{16} << 10;
  int64_t stream_bytes = int64_t{1} << 20;
  int64_t answer_bytes = int64_t{256} << 20;
  int64_t choices = 16;
  int64_t request_timeout_ms = 0;  // 0: none
  int64_t keep_alive_s = 75;
  int64_t ping_s = 15;
  int64_t shutdown_s = 30;
  int64_t stall_s = 60;
  bool strict = false;

  // How it runs.
  int64_t http_threads = 1;
  int64_t output_threads = 1;
  int64_t prepare_threads = 2;
  int64_t grammar_workers = 1;
  std::string metrics_compat = "none";
  std::string log_level = "info";
  bool log_requests = true;
};

enum class Origin : uint8_t { kDefault, kFile, kEnvironment, kFlag };
std::string_view name_of(Origin origin);

struct Setting {
  using Member = std::variant<std::string Settings::*, int64_t Settings::*, bool Settings::*, std::vector<std::string> Settings::*>;

  std::string_view group;
  std::string_view name;  // "max-num-seqs": flag --max-num-seqs, YAML key max-num-seqs, environment BATON_MAX_NUM_SEQS
  Member member;
  std::string_view doc;
  // Flags that mean the same. With a leading '!', flags that mean the opposite.
  std::vector<std::string_view> aliases{};
  std::vector<std::string_view> words{};  // the values that there are, for text
  int64_t least = 0, most = INT64_MAX;    // for numbers
  bool repeats() const { return std::holds_alternative<std::vector<std::string> Settings::*>(member); }
  bool is_switch() const { return std::holds_alternative<bool Settings::*>(member); }
};

std::span<const Setting> all_settings();
// By its name or an alias, without dashes in front; `opposite` says whether the alias means the opposite.
const Setting* find_setting(std::string_view name, bool* opposite = nullptr);
std::string environment_name(const Setting& setting);

// Lists are separated by commas. Fails with a message that begins with `where`.
Status assign(Settings& settings, const Setting& setting, std::string_view text, const std::string& where);
std::string text_of(const Settings& settings, const Setting& setting);

struct LoadedSettings {
  Settings values;
  std::vector<Origin> origins;  // by place in all_settings()
};

struct SettingSources {
  std::vector<std::pair<std::string, std::string>> flags;  // name without dashes, value; in order
  std::string file;                                        // YAML; empty: none
  // The value of an environment variable, if it is set.
  std::function<std::optional<std::string>(const std::string&)> environment = [](const std::string&) { return std::nullopt; };
};

// Fails for names that do not exist and values that cannot be, saying where they stand.
Result<LoadedSettings> load_settings(const SettingSources& sources);

// YAML that load_settings() reads; with origins as comments. Keys of clients are left out.
std::string dump(const LoadedSettings& settings, bool with_origins);
// The page of the documentation.
std::string settings_page();

}  // namespace baton::server
