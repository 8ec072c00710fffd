// baton router: one address for many instances.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>

#include "app/commands.h"
#include "base/log.h"
#include "http/endpoint.h"
#include "router/router.h"

namespace baton::app {
namespace {

using Clock = std::chrono::steady_clock;

sigset_t our_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT}) sigaddset(&set, s);
  return set;
}

// Whether the program has been told to end.
bool told_within(std::chrono::milliseconds limit) {
  const sigset_t set = our_signals();
  const timespec wait{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
  return sigtimedwait(&set, nullptr, &wait) > 0;
}

Status route(const router::Settings& s) {
  set_log_level(s.log_level == "debug"     ? LogLevel::kDebug
                : s.log_level == "warning" ? LogLevel::kWarning
                : s.log_level == "error"   ? LogLevel::kError
                                           : LogLevel::kInfo);
  const sigset_t signals = our_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  BATON_ASSIGN(const auto running, router::Router::start(s, BATON_VERSION));
  const LogField fields[] = {{"url", http::listening_url(!s.tls_certificate.empty(), s.host, running->port())},
                             {"port", running->port()},
                             {"instances", s.unified.size() + s.prefill.size() + s.decode.size()}};
  log_event(LogLevel::kInfo, "ready", fields);
  while (!told_within(std::chrono::hours(1))) continue;
  log_info("ending: requests that are under way have {} s", s.shutdown_s);
  running->begin_drain();
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(s.shutdown_s);
  constexpr std::chrono::milliseconds kGlance(50);
  while (Clock::now() < deadline) {
    if (running->drain(std::min(Clock::now() + kGlance, deadline))) {
      log_info("all requests have ended");
      return {};
    }
    if (told_within(std::chrono::milliseconds(0))) break;
  }
  log_warning("ending at once; requests that are under way are cut");
  running->cut_all();
  // Their clients are told so.
  constexpr std::chrono::seconds kLastWords(1);
  running->drain(Clock::now() + kLastWords);
  return Error{Error::Kind::kExhausted, "requests that were under way have been cut"};
}

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

CLI::Option* add_flag(CLI::App& c, const router::Setting& s, router::Settings& values, const std::string& doc) {
  const std::string name = fmt::format("--{}", s.name);
  return std::visit(
      Overload{
          [&](std::string router::Settings::*member) {
            CLI::Option* o = c.add_option(name, values.*member, doc);
            if (!s.words.empty()) o->check(CLI::IsMember(std::vector<std::string>(s.words.begin(), s.words.end())));
            return o;
          },
          [&](int64_t router::Settings::*member) { return c.add_option(name, values.*member, doc)->check(CLI::Range(s.least, s.most)); },
          [&](bool router::Settings::*member) { return c.add_flag(fmt::format("{0},!--no-{1}", name, s.name), values.*member, doc); },
          [&](std::vector<std::string> router::Settings::*member) { return c.add_option(name, values.*member, doc)->delimiter(','); }},
      s.member);
}

}  // namespace

void add_router(CLI::App& app, int& exit_code) {
  CLI::App* c = app.add_subcommand("router", "One address for many instances of `serve`: load, cached beginnings, failures");
  const auto values = std::make_shared<router::Settings>();
  for (const router::Setting& s : router::all_settings()) {
    const std::string value = router::text_of({}, s);
    add_flag(*c, s, *values, value.empty() ? std::string(s.doc) : fmt::format("{} [{}]", s.doc, value))
        ->envname(router::environment_name(s))
        ->group(std::string(s.group));
  }
  c->callback([values, &exit_code] { exit_code = finish(route(*values)); });
}

}  // namespace baton::app
