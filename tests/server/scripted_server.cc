// A server whose model writes what the client tells it to (script_executor.h): everything else is the real thing.
//
// scripted_server MODEL-FOLDER PACE-US [--flag value ...]   flags of baton serve. Only tokenizer.json and the chat template are read.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "server/script_executor.h"
#include "server/serve_loop.h"
#include "text/grammar/worker.h"

namespace baton::tests {
namespace {

Status serve(const std::string& folder, int64_t pace_us, const server::LoadedSettings& loaded) {
  server::Settings s = loaded.values;
  s.model = folder;
  server::block_signals();
  constexpr int64_t kContext = 8192;
  BATON_ASSIGN(const text::Tokenizer measure, text::Tokenizer::load(folder));
  const int64_t columns = measure.id_limit();
  BATON_ASSIGN(const auto model, server::ServedModel::load({.folder = folder,
                                                            .names = {"scripted"},
                                                            .tokenizer = {},
                                                            .chat_template = {},
                                                            .eos_tokens = {},
                                                            .columns = columns,
                                                            .context_tokens = kContext}));
  const auto slots = static_cast<int32_t>(s.running);
  auto executor = std::make_unique<ScriptExecutor>(model->tokenizer(), columns, slots, std::chrono::microseconds(pace_us));
  engine::EngineOptions options;
  options.scheduler = {.memory = {.pages = std::max(slots * 40, 256), .slots = slots, .snapshots = 16, .host_pages = 0, .host_slots = 0},
                       .context_tokens = kContext,
                       .vocabulary = columns,
                       .prefill_tokens = 8192,
                       .max_waiting = std::numeric_limits<int32_t>::max()};
  BATON_ASSIGN(const auto engine, engine::Engine::create(std::move(executor), options));
  server::Metrics metrics;
  server::Service service(
      *model, *engine, metrics,
      {.most_choices = s.running + s.queued, .running = s.running, .output_threads = static_cast<int>(s.output_threads)});
  BATON_ASSIGN(const auto server, server::Server::start(service, {.settings = s, .version = "scripted", .description = {}}));
  const LogField fields[] = {{"port", server->port()}};
  log_event(LogLevel::kInfo, "ready", fields);
  if (!server::serve_until_told(*server)) return Error{Error::Kind::kExhausted, "requests that were under way have been cut"};
  return {};
}

int run(int argc, char** argv) {
  if (argc < 3 || argc % 2 == 0) {
    fmt::print(stderr, "usage: scripted_server MODEL-FOLDER PACE-US [--flag value ...]\n");
    return 2;
  }
  server::SettingSources sources;
  for (int i = 3; i + 1 < argc; i += 2) sources.flags.emplace_back(std::string(argv[i]).substr(2), argv[i + 1]);
  const auto settings = server::load_settings(sources);
  const Status s = settings.ok() ? serve(argv[1], std::atoll(argv[2]), *settings) : Status(settings.error());
  if (s.ok()) return 0;
  fmt::print(stderr, "scripted_server: {}\n", s.error().message);
  return 1;
}

}  // namespace
}  // namespace baton::tests

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "grammar-worker") return baton::text::run_grammar_worker();
  return baton::tests::run(argc, argv);
}
