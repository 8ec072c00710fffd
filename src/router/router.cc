#include "router/router.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "api/error.h"
#include "base/log.h"
#include "base/random.h"
#include "http/secret.h"
#include "router/metrics.h"
#include "router/page.h"
#include "router/prompt_blocks.h"
#include "router/relay.h"

namespace baton::router {
namespace {

using api::ApiError;
using api::Dialect;
using Clock = std::chrono::steady_clock;

// What is handed on; a path with '/' at its end stands for whatever begins so.
struct Forwarded {
  std::string_view method;
  std::string_view path;
  Dialect dialect = Dialect::kOpenAi;
};
constexpr Forwarded kForwarded[] = {
    {"POST", "/v1/chat/completions"},
    {"POST", "/v1/completions"},
    {"POST", "/v1/responses"},
    {"POST", "/v1/messages", Dialect::kAnthropic},
    {"POST", "/v1/messages/count_tokens", Dialect::kAnthropic},
    {"POST", "/generate", Dialect::kNative},
    {"POST", "/tokenize"},
    {"POST", "/detokenize"},
    {"POST", "/render"},
    {"GET", "/v1/models"},
    {"GET", "/v1/models/"},
    {"GET", "/health_generate"},
};
constexpr std::string_view kOwn[] = {"/", "/page/", "/livez", "/readyz", "/health", "/metrics", "/server_info", "/version"};

bool matches(std::string_view pattern, std::string_view path) {
  const bool folder = pattern.size() > 1 && pattern.ends_with('/');
  return folder ? path.starts_with(pattern) && path.size() > pattern.size() : path == pattern;
}

http::ListenerOptions listener_options(const Settings& s) {
  http::ListenerOptions o;
  o.host = s.host;
  o.port = static_cast<uint16_t>(s.port);
  o.threads = static_cast<int>(s.http_threads);
  o.limits.header_bytes = static_cast<size_t>(s.header_bytes);
  o.limits.body_bytes = static_cast<size_t>(s.body_bytes);
  o.limits.connections = static_cast<int>(s.connections);
  o.limits.idle_timeout = std::chrono::seconds(s.keep_alive_s);
  o.limits.ping = std::chrono::seconds(s.ping_s);
  o.limits.stream_bytes = static_cast<size_t>(s.stream_bytes);
  if (!s.tls_certificate.empty()) o.tls = http::TlsFiles{s.tls_certificate, s.tls_key, {}};
  o.refusal = [](int status, std::string_view message, const http::Request* head) {
    const Dialect dialect = api::dialect_of(head != nullptr ? std::string_view(head->path) : std::string_view());
    return http::Response{
        .status = status, .headers = {}, .body = api::error_body(dialect, ApiError::of_http(status, std::string(message)))};
  };
  return o;
}

// Hears how a probe went.
class Probe final : public http::Receiver {
 public:
  explicit Probe(std::function<void(int status, std::string why, bool refused)> told) : told_(std::move(told)) {}
  void on_head(int status, const http::HeaderList&) override { status_ = status; }
  void on_body(std::string_view bytes) override {
    constexpr size_t kMostShown = 200;
    body_ += bytes.substr(0, kMostShown - std::min(kMostShown, body_.size()));
  }
  void on_end(const http::CallEnd& end) override { told_(end.complete ? status_ : 0, end.complete ? body_ : end.problem, end.refused); }

 private:
  std::function<void(int, std::string, bool)> told_;
  int status_ = 0;
  std::string body_;
};

}  // namespace

Router::Router(const Settings& settings, std::string version)
    : version_(std::move(version)), hub_(std::make_shared<Hub>(settings, FleetOptions{.silence_ms = settings.silence_ms})) {
  std::random_device device;
  number_key_ = uint64_t{device()} << 32 | device();
}

Router::~Router() {
  if (listener_ != nullptr) listener_->close();  // the loop still looks at it
  if (hub_->loop != nullptr) hub_->loop->stop();
  // No thread calls anything any more. The relays of the table know the hub, and the hub them.
  hub_->loop.reset();
  hub_->relays.clear();
}

Result<std::unique_ptr<Router>> Router::start(const Settings& settings, const std::string& version) {
  std::unique_ptr<Router> router(new Router(settings, version));
  BATON_TRY(router->open());
  return router;
}

Status Router::open() {
  const Settings& s = hub_->settings;
  if (s.unified.empty() && s.decode.empty())
    return Error{.message = "no instances are given; baton router --unified http://host:port ..., or --prefill and --decode"};
  if (s.tls_certificate.empty() != s.tls_key.empty())
    return Error{.message = "--ssl-certfile and --ssl-keyfile belong together; give both or none"};
  if (s.fleet_certificate.empty() != s.fleet_key.empty())
    return Error{.message = "--fleet-certfile and --fleet-keyfile belong together; give both or none"};
  if (!s.secret_file.empty()) {
    BATON_ASSIGN(hub_->secret, http::read_secret(s.secret_file));
  }
  if (!http::is_this_machine(s.host) && hub_->secret.empty() && s.fleet_certificate.empty())
    return Error{
        .message = fmt::format("a router that listens on {} wants to be known to its instances: give --fleet-secret-file, or a certificate "
                               "with --fleet-certfile; without either it listens on this machine alone (--host 127.0.0.1)",
                               s.host)};
  for (const std::string& url : s.unified) BATON_TRY(add(url, Role::kUnified));
  for (const std::string& url : s.prefill) BATON_TRY(add(url, Role::kPrefill));
  for (const std::string& url : s.decode) BATON_TRY(add(url, Role::kDecode));
  BATON_ASSIGN(hub_->loop, http::ClientLoop::start({.tls = {.ca_file = s.fleet_ca, .certificate = s.fleet_certificate, .key = s.fleet_key},
                                                    .connect_timeout = std::chrono::milliseconds(s.connect_timeout_ms)}));
  // The loop's ticks begin when everything they use is there.
  hub_->loop->post([this] { hub_->loop->on_tick([this] { tick(); }); });
  listener_ = http::Listener::create(listener_options(s), [this](std::shared_ptr<http::Exchange> e) { handle(std::move(e)); });
  return listener_->open();
}

Status Router::add(const std::string& text, Role role) {
  BATON_ASSIGN(const http::Url url, http::Url::parse(text));
  if (!url.path.empty() && url.path != "/")
    return Error{.message = fmt::format("the instance {} is given with a path; write scheme, host and port alone", text)};
  BATON_ASSIGN(const http::Endpoint endpoint, http::Endpoint::resolve(url));
  BATON_ASSIGN(const int i, hub_->fleet.add(fmt::format("{}://{}", url.tls ? "https" : "http", endpoint.authority()), Hub::now(), role));
  hub_->endpoints[static_cast<size_t>(i)] = endpoint;
  return {};
}

void Router::tick() {
  const TimeMs now = Hub::now();
  constexpr TimeMs kLongTick = 500;  // ten times what it is
  if (ticked_ != 0 && now - ticked_ > kLongTick) hub_->fleet.slept(now - ticked_);
  ticked_ = now;
  for (int i = 0; i < kMostInstances; ++i) {
    TimeMs& at = hub_->probe_at[static_cast<size_t>(i)];
    if (!hub_->fleet.known(i) || probing_[static_cast<size_t>(i)] || now < at) continue;
    at = now + hub_->settings.probe_interval_ms;
    probe(i);
  }
  for (const int i : hub_->fleet.lost(now)) {
    std::vector<std::shared_ptr<Relay>> relays;
    for (const auto& [key, relay] : hub_->relays) relays.push_back(relay);
    for (const auto& relay : relays) relay->instance_lost(i);
  }
}

void Router::probe(int i) {
  probing_[static_cast<size_t>(i)] = true;
  const auto told = [this, i](int status, std::string why, bool refused) {
    probing_[static_cast<size_t>(i)] = false;
    if (!hub_->fleet.known(i)) return;
    const Instance& instance = hub_->fleet.instances()[static_cast<size_t>(i)];
    const Health before = instance.health;
    if (status == 0)
      hub_->fleet.unreachable(i, std::move(why), refused, Hub::now());
    else
      hub_->fleet.probed(i, status == 200, fmt::format("{} {}", status, why), Hub::now());
    if (status == 200) hub_->fleet.told(i, read_figures(why));
    if (instance.health == before) return;
    const LogField fields[] = {{"instance", instance.url}, {"health", std::string(name_of(instance.health))}, {"why", instance.why}};
    log_event(instance.health == Health::kReady ? LogLevel::kInfo : LogLevel::kWarning, "instance", fields);
  };
  http::HeaderList headers;
  hub_->add_fleet_headers(i, headers);
  hub_->loop->call({.endpoint = hub_->endpoints[static_cast<size_t>(i)],
                    .target = "/readyz",
                    .headers = std::move(headers),
                    .silence_timeout = std::chrono::milliseconds(hub_->settings.probe_timeout_ms)},
                   std::make_shared<Probe>(told));
}

void Router::handle(std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  if (http::Cors::is_preflight(request)) return exchange->respond(hub_->cors.preflight(request));
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const auto refuse = [&](const ApiError& error) {
    http::HeaderList headers;
    if (error.status == 503) headers.emplace_back("retry-after", "1");
    hub_->cors.decorate(request, headers);
    exchange->respond(
        {.status = error.status, .headers = std::move(headers), .body = api::error_body(api::dialect_of(request.path), error)});
  };
  const Forwarded* route = nullptr;
  bool path_known = false;
  for (const Forwarded& f : kForwarded) {
    if (!matches(f.path, request.path)) continue;
    path_known = true;
    if (f.method == method) route = &f;
  }
  for (const std::string_view own : kOwn) {
    if (!matches(own, request.path)) continue;
    path_known = true;
    if (method == "GET") return handle_own(exchange);
  }
  if (route == nullptr)
    return refuse(path_known ? ApiError::method_not_allowed(fmt::format("{} does not take {}.", request.path, request.method))
                             : ApiError::not_found("There is no such endpoint here."));
  // Instances do not see the origin, so what they would refuse is refused here.
  if (method == "POST" && hub_->cors.is_foreign(request))
    return refuse(
        {.status = 403,
         .type = "permission_error",
         .code = "forbidden",
         .message = fmt::format("Pages of {} may not use this server; --allowed-origins names those that may.", request.header("origin"))});
  if (draining_) return refuse(ApiError::overloaded("The router is ending; send the request elsewhere."));
  const uint64_t n = requests_.fetch_add(1, std::memory_order_relaxed);
  const PhiloxBlock block = philox(number_key_, {static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), 2, 0});
  // Keys have caches of their own.
  const std::string_view key = request.header("authorization").empty() ? request.header("x-api-key") : request.header("authorization");
  auto blocks = route->method == "POST" ? prompt_blocks(request.body, key) : std::vector<uint64_t>();
  const auto relay = std::make_shared<Relay>(
      hub_, exchange, route->dialect, fmt::format("{:08x}{:08x}{:08x}{:08x}", block[0], block[1], block[2], block[3]), std::move(blocks));
  hub_->loop->post([relay] { relay->begin(); });
  exchange->on_gone([hub = hub_.get(), weak = std::weak_ptr<Relay>(relay)] {
    hub->loop->post([weak] {
      if (const auto gone = weak.lock()) gone->client_gone();
    });
  });
}

void Router::handle_own(const std::shared_ptr<http::Exchange>& exchange) {
  const std::string path = exchange->request().path;
  const auto answer = [exchange](int status, std::string body, std::string type = "application/json") {
    exchange->respond({.status = status, .content_type = std::move(type), .body = std::move(body)});
  };
  if (path == "/livez") return answer(200, R"({"status":"ok"})");
  if (path == "/version") return answer(200, fmt::format(R"({{"version":"{}"}})", version_));
  if (path == "/" || path.starts_with("/page/")) {
    if (hub_->settings.web_page) return respond_page(*exchange);
    return answer(404, api::error_body(Dialect::kOpenAi, ApiError::not_found("There is no such page here.")));
  }
  hub_->loop->post([this, path, answer] {
    if (path == "/metrics")
      return answer(200, metrics_text(*hub_, listener_->counters(), version_), "text/plain; version=0.0.4; charset=utf-8");
    if (path == "/server_info") return answer(200, fleet_json(*hub_, version_, draining_));
    const std::string_view why = draining_ ? "the router is ending" : hub_->fleet.ready(Hub::now()) == 0 ? "no instance is ready" : "";
    if (why.empty()) return answer(200, R"({"status":"ok"})");
    answer(503, fmt::format(R"({{"status":"unready","reason":"{}"}})", why));
  });
}

void Router::begin_drain() {
  if (draining_.exchange(true)) return;
  listener_->stop_accepting();
}

bool Router::drain(Clock::time_point deadline) { return listener_->drain(deadline); }

void Router::cut_all() {
  hub_->loop->post([hub = hub_.get()] {
    std::vector<std::shared_ptr<Relay>> relays;
    for (const auto& [key, relay] : hub->relays) relays.push_back(relay);
    for (const auto& relay : relays) relay->cut();
  });
}

}  // namespace baton::router
