// baton serve: the server for one model on this machine. baton config: what it would be set to, and why.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "app/model_flags.h"
#include "app/serve_fleet.h"
#include "app/setting_flags.h"
#include "base/log.h"
#include "engine/drafter_source.h"
#include "engine/local_engine.h"
#include "http/endpoint.h"
#include "router/settings.h"
#include "server/metrics.h"
#include "server/serve_loop.h"

namespace baton::app {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

LogLevel level_of(const std::string& name) {
  return name == "debug" ? LogLevel::kDebug : name == "warning" ? LogLevel::kWarning : name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

Result<engine::LocalOptions> engine_options(const server::Settings& s, const model::Checkpoint& checkpoint) {
  ModelFlags flags;
  flags.prefill_tokens = s.prefill_tokens;
  flags.threads = static_cast<int>(s.threads);
  flags.isa = s.isa == "auto" ? "" : s.isa;
  flags.dtype = s.dtype;
  flags.kv_cache_dtype = s.kv_cache_dtype;
  flags.index_dtype = s.index_dtype;
  flags.state_dtype = s.state_dtype;
  flags.activation_quant = s.activation_quant;
  flags.kda = s.kda;
  flags.attention = s.attention;
  flags.memory_bytes = s.memory_bytes;
  flags.pool_tokens = s.pool_tokens > 0 ? s.pool_tokens : cache::kAutomatic;
  flags.snapshots = s.snapshots >= 0 ? static_cast<int32_t>(s.snapshots) : cache::kAutomatic;
  flags.host_bytes = s.host_bytes;
  flags.speculation = {.algorithm = s.speculative_algorithm,
                       .steps = s.speculative_steps > 0 ? static_cast<int32_t>(s.speculative_steps) : -1,
                       .draft_tokens = s.speculative_draft_tokens > 0 ? static_cast<int32_t>(s.speculative_draft_tokens) : -1,
                       .draft_model = s.speculative_draft_model,
                       .adaptive = s.speculative_adaptive,
                       .sampled_proposals = s.speculative_sampled_proposals};
  BATON_ASSIGN(engine::LocalOptions o, flags.local_options(checkpoint));
  o.context_tokens = s.context_tokens;
  o.running = static_cast<int32_t>(s.running);
  // On a CPU rows are dear and states are small: a page is worth one, where short system prompts end.
  o.snapshot_tokens = 64;
  // The service turns away what is too much; the engine never has to.
  o.max_waiting = std::numeric_limits<int32_t>::max();
  o.max_mail = std::numeric_limits<int32_t>::max();
  o.context_flag = "--max-model-len";
  o.running_flag = "--max-num-seqs";
  return o;
}

std::string describe(const engine::LocalEngine& local) {
  std::string out = R"("budget":[)";
  bool first = true;
  for (const cache::BudgetLine& l : local.budget().device) {
    out += fmt::format(R"({}{{"name":"{}","bytes":{}}})", first ? "" : ",", l.name, l.bytes());
    first = false;
  }
  const cache::Budget& b = local.budget();
  return out +
         fmt::format(R"(],"weight_bytes":{},"workspace_bytes":{},"request":{{"tokens":{},"bytes":{},"fit":{},"bytes_without_drafter":{},)"
                     R"("fit_without_drafter":{}}})",
                     local.model().weight_bytes(), local.model().workspace_bytes(), b.context_tokens, b.requests.bytes_each, b.requests.fit,
                     b.without_drafter.bytes_each, b.without_drafter.fit);
}

// What is read before the weights are: it is quick, and most of what can be wrong shows here.
struct Opened {
  model::Checkpoint checkpoint;
  std::unique_ptr<server::ServedModel> model;
  engine::LocalOptions options;
};

Result<Opened> open_model(const server::Settings& s) {
  if (s.model.empty()) return Error{Error::Kind::kInvalid, "no model is given; baton serve --model FOLDER"};
  BATON_TRY(server::Server::check(s));
  BATON_ASSIGN(model::Checkpoint checkpoint, model::Checkpoint::open(s.model));
  BATON_ASSIGN(auto model, server::ServedModel::load({.folder = s.model,
                                                      .names = s.served_names,
                                                      .tokenizer = s.tokenizer,
                                                      .chat_template = s.chat_template,
                                                      .eos_tokens = checkpoint.config().eos_token_ids,
                                                      .columns = checkpoint.config().vocab_size,
                                                      .grammar_workers = static_cast<int>(s.grammar_workers)}));
  BATON_ASSIGN(engine::LocalOptions options, engine_options(s, checkpoint));
  options.vocabulary = model->tokenizer().id_limit();  // the engine draws no ids behind its last
  return Opened{std::move(checkpoint), std::move(model), std::move(options)};
}

// As much of a start as needs neither weights nor the port.
Status check_settings(const server::Settings& s) {
  BATON_ASSIGN(Opened opened, open_model(s));
  BATON_TRY(join_fleet(s, opened.options));
  const model::Config& config = opened.checkpoint.config();
  const int64_t context = s.context_tokens > 0 ? s.context_tokens : config.max_position_embeddings;
  BATON_TRY(engine::choose_drafter(opened.options.speculation, config, opened.options.numerics.activation, context));
  return {};
}

Status serve(const server::LoadedSettings& loaded, bool& drained) {
  const server::Settings& s = loaded.values;
  set_log_level(level_of(s.log_level));
  server::block_signals();
  const Clock::time_point begin = Clock::now();

  BATON_ASSIGN(Opened opened, open_model(s));
  const std::unique_ptr<server::ServedModel>& model = opened.model;
  BATON_ASSIGN(const FleetParts fleet, join_fleet(s, opened.options));
  const Clock::time_point opening = Clock::now();
  BATON_ASSIGN(const auto local, engine::LocalEngine::open(opened.checkpoint, opened.options));
  const double engine_s = seconds_since(opening);
  model->limit_context(local->context_tokens());
  if (model->chat() == nullptr) log_warning("{} has no chat template; chats will be refused", s.model);

  server::Metrics metrics;
  server::Service service(*model, local->engine(), metrics,
                          {.most_choices = s.running + s.queued,
                           .running = s.running,
                           .output_threads = static_cast<int>(s.output_threads),
                           .trust_assistant = s.trust_assistant,
                           .prefix_caching = s.prefix_caching});
  BATON_ASSIGN(const auto server,
               server::Server::start(
                   service, {.settings = s, .version = BATON_VERSION, .description = describe(*local), .fleet = fleet.post.get()}));
  if (fleet.post != nullptr) fleet.post->open(local->engine(), server->port(), !s.tls_certificate.empty());
  const LogField fields[] = {{"url", http::listening_url(!s.tls_certificate.empty(), s.host, server->port())},
                             {"port", server->port()},
                             {"role", s.role == "null" ? "unified" : s.role},
                             {"model", model->name()},
                             {"context_tokens", local->context_tokens()},
                             {"request_bytes", local->budget().requests.bytes_each},
                             {"requests_fit", local->budget().requests.fit},
                             {"requests_fit_without_drafter", local->budget().without_drafter.fit},
                             {"engine_seconds", engine_s},
                             {"seconds", seconds_since(begin)}};
  log_event(LogLevel::kInfo, "ready", fields);
  drained = server::serve_until_told(*server);
  if (fleet.post != nullptr) fleet.post->close();  // before the engine that it tells things
  return {};
}

void write(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  CLI::App* c = app.add_subcommand("serve", "Serve a model over HTTP: OpenAI's endpoints and others");
  const auto flags = SettingFlags::add_to(*c);
  c->callback([flags, &exit_code] {
    const auto settings = flags->load();
    bool drained = true;
    exit_code = finish(settings.ok() ? serve(*settings, drained) : Status(settings.error()));
    if (exit_code == 0 && !drained) exit_code = finish(Error{Error::Kind::kExhausted, "requests that were under way have been cut"});
  });
}

void add_config(CLI::App& app, int& exit_code) {
  CLI::App* c = app.add_subcommand("config", "Show and check what `serve` would be set to");
  c->require_subcommand(1);

  CLI::App* dump = c->add_subcommand("dump", "Print the settings as YAML, from flags, environment and file");
  auto origin = std::make_shared<bool>(false);
  dump->add_flag("--origin", *origin, "Say where each value comes from");
  const auto dumped = SettingFlags::add_to(*dump);
  dump->callback([dumped, origin, &exit_code] {
    const auto settings = dumped->load();
    if (settings.ok()) write(server::dump(*settings, *origin));
    exit_code = finish(settings.ok() ? Status() : Status(settings.error()));
  });

  CLI::App* check = c->add_subcommand("check", "Say what is wrong with the settings, if anything");
  const auto checked = SettingFlags::add_to(*check);
  check->callback([checked, &exit_code] {
    const auto settings = checked->load();
    exit_code = finish(settings.ok() ? check_settings(settings->values) : Status(settings.error()));
  });

  c->add_subcommand("page", "Print the documentation of the settings")->callback([] { write(server::settings_page()); });
  c->add_subcommand("router", "Print the documentation of the settings and metrics of `router`")->callback([] {
    write(router::reference_page());
  });
  c->add_subcommand("metrics", "Print the documentation of the metrics")->callback([] { write(server::metrics_page()); });
}

}  // namespace baton::app
