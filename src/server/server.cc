#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/random.h"
#include "http/request_ids.h"
#include "http/secret.h"
#include "server/endpoints.h"

namespace baton::server {
namespace {

using api::ApiError;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostPreparing = 1024;
constexpr size_t kMostForming = 256;

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
  if (!s.tls_certificate.empty()) o.tls = http::TlsFiles{s.tls_certificate, s.tls_key, s.tls_client_ca};
  return o;
}

std::string_view key_of(const http::Request& request) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view header = request.header("authorization");
  if (header.size() > kBearer.size() && http::equal_names(header.substr(0, kBearer.size()), kBearer)) return header.substr(kBearer.size());
  return request.header("x-api-key");
}

}  // namespace

Status Server::check(const Settings& s) {
  if (s.tls_certificate.empty() != s.tls_key.empty())
    return Error{Error::Kind::kInvalid, "--ssl-certfile and --ssl-keyfile belong together; give both or none"};
  if (!s.tls_client_ca.empty() && s.tls_certificate.empty())
    return Error{Error::Kind::kInvalid, "--ssl-ca-certs checks the clients of a TLS server; it needs --ssl-certfile and --ssl-keyfile"};
  const bool alone = s.role != "prefill" && s.role != "decode";
  if (!alone && !http::is_this_machine(s.host) && s.fleet_secret_file.empty() && s.tls_client_ca.empty())
    return Error{Error::Kind::kInvalid,
                 fmt::format("a {} instance that listens on {} takes messages from other instances alone: give --fleet-secret-file, or "
                             "--ssl-ca-certs; without either it listens on this machine alone (--host 127.0.0.1)",
                             s.role, s.host)};
  for (const std::string& origin : s.allowed_origins)
    if (origin != "*" && origin != "null" &&
        (origin.find("://") == std::string::npos || origin.find_first_of(" \t") != std::string::npos || origin.ends_with('/')))
      return Error{
          Error::Kind::kInvalid,
          fmt::format("--allowed-origins {}: no browser has this origin; give scheme and host, such as https://example.org, or *", origin)};
  if (!s.fleet_secret_file.empty()) BATON_TRY(http::read_secret(s.fleet_secret_file));
  BATON_TRY(ApiKeys::load(s.api_keys, s.api_key_file));
  return {};
}

Result<std::unique_ptr<Server>> Server::start(Service& service, const ServerOptions& options) {
  const Settings& s = options.settings;
  BATON_TRY(check(s));
  std::unique_ptr<Server> server(new Server(service, options));
  if (!s.fleet_secret_file.empty()) {
    BATON_ASSIGN(server->secret_, http::read_secret(s.fleet_secret_file));
  }
  BATON_ASSIGN(server->keys_, ApiKeys::load(s.api_keys, s.api_key_file));
  Server* raw = server.get();
  http::ListenerOptions listening = listener_options(s);
  listening.refusal = [raw](int status, std::string_view message, const http::Request* head) {
    return raw->refusal(status, message, head);
  };
  server->listener_ = http::Listener::create(std::move(listening), [raw](std::shared_ptr<http::Exchange> e) { raw->handle(std::move(e)); });
  BATON_TRY(server->listener_->open());
  return server;
}

Server::Server(Service& service, const ServerOptions& options)
    : service_(service), options_(options), answer_memory_(options.settings.answer_bytes), cors_(options.settings.allowed_origins),
      prepare_(static_cast<int>(options.settings.prepare_threads), kMostPreparing),
      form_(static_cast<int>(options.settings.grammar_workers) + 1, kMostForming) {
  parse_limits_.body_bytes = static_cast<size_t>(options.settings.body_bytes);
  parse_limits_.choices = static_cast<int32_t>(options.settings.choices);
  parse_limits_.vocabulary = static_cast<int32_t>(std::min<int64_t>(service.model().columns(), service.model().tokenizer().id_limit()));
  parse_limits_.strict = options.settings.strict;
  std::random_device device;
  call_key_ = uint64_t{device()} << 32 | device();
}

Server::~Server() {
  draining_ = true;
  service_.cancel_all();
  if (listener_ != nullptr) listener_->close();  // requests under way look at it
  // Whatever is still under way knows this server.
  prepare_.stop();
  form_.stop();
  service_.cancel_all();
  constexpr std::chrono::milliseconds kGlance(100);
  while (!service_.wait_idle(kGlance)) service_.cancel_all();
}

// Other instances go on calling this one while it has something to do with them; to be unreachable would tell them that it is gone.
void Server::begin_drain() {
  if (draining_.exchange(true)) return;
  if (options_.fleet != nullptr)
    options_.fleet->drain();
  else
    listener_->stop_accepting();
}

bool Server::is_at_work() const { return service_.open_choices() > 0 || service_.engine().metrics().role.prefill.active > 0; }

bool Server::drain(Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kGlance(10);
  while (options_.fleet != nullptr && is_at_work()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kGlance);
  }
  return listener_->drain(deadline);
}

void Server::cancel_all() { service_.cancel_all(); }

Status Server::reload() {
  const Status keys = keys_->reload();
  const Status tls = options_.settings.tls_certificate.empty() ? Status() : listener_->reload_tls();
  if (keys.ok() || tls.ok()) return keys.ok() ? tls : keys;
  return Error{keys.error().kind, fmt::format("{}; and {}", keys.error().message, tls.error().message)};
}

MetricSources Server::metric_sources() const {
  return {.server = service_.metrics(),
          .engine = service_.engine().metrics(),
          .http = listener_->counters(),
          .grammars = service_.model().grammar_counters(),
          .answer_bytes = answer_memory_.held(),
          .preparing = prepare_.waiting() + form_.waiting(),
          .queue_limit = service_.options().most_choices,
          .fleet = options_.fleet != nullptr ? options_.fleet->totals() : fleet::Post::Totals(),
          .model = service_.model().name(),
          .version = options_.version};
}

// Work that does not go on is a stalled device; an idle one is fine.
std::string Server::unready() {
  if (draining_) return "the server is ending";
  if (options_.fleet != nullptr && !options_.fleet->is_prefill() && options_.fleet->prefills_there() == 0)
    return "no prefill instance is there";
  const sched::Metrics m = service_.engine().metrics().scheduler;
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(stall_mutex_);
  const bool working = m.waiting + m.prefilling + m.decoding > 0;
  if (!working || m.cycles != stall_cycles_) {
    stall_cycles_ = working ? m.cycles : -1;
    stall_since_ = now;
  }
  const auto limit = std::chrono::seconds(options_.settings.stall_s);
  if (now - stall_since_ > limit) return fmt::format("there is work, and no cycle has ended for {} s", limit.count());
  return {};
}

void Server::run(WorkPool& pool, const std::shared_ptr<Call>& call, std::function<void()> work) {
  if (pool.push(work)) return;
  metrics().refused.add(Refused::kBusy);
  call->fail(ApiError::overloaded("As many requests wait to be read as may; try again later."));
}

void Server::prepare(const std::shared_ptr<Call>& call, std::function<void()> work) { run(prepare_, call, std::move(work)); }
void Server::form(const std::shared_ptr<Call>& call, std::function<void()> work) { run(form_, call, std::move(work)); }

bool Server::check_model(Call& call, const std::string& name) {
  call.model = name;
  if (name.empty() || service_.model().has_name(name)) return true;
  metrics().refused.add(Refused::kNotFound);
  call.fail(ApiError::model_not_found(name));
  return false;
}

// Of a router or another instance.
bool Server::is_of_fleet(const http::Request& request) const {
  if (!secret_.empty()) return http::equal_secrets(request.header(http::kFleetSecretHeader), secret_);
  return !options_.settings.tls_client_ca.empty() || http::is_this_machine(options_.settings.host);
}

// Whether this instance generates, and can now.
bool Server::takes_requests(Call& call) {
  const fleet::Post* post = options_.fleet;
  if (post == nullptr || (!post->is_prefill() && post->prefills_there() > 0)) return true;
  metrics().refused.add(Refused::kNoPrefill);
  if (post->is_prefill())
    call.fail({.status = 421,
               .code = "prefill_instance",
               .message =
                   "This is a prefill instance: it computes prompts for decode instances. Send requests to one of these, or to a router."});
  else
    call.fail(ApiError::overloaded("No prefill instance is there to compute the prompt; try again later."));
  return false;
}

bool Server::authorise(Call& call, int access) {
  const bool of_fleet = is_of_fleet(call.request());
  if (of_fleet && options_.fleet != nullptr)
    if (const std::string_view urls = call.request().header(fleet::kPrefillHeader); !urls.empty()) options_.fleet->list(urls);
  if (access == static_cast<int>(Access::kFleet) && options_.fleet == nullptr) {
    call.fail(ApiError::not_found("This instance has no part in a hand-over."));
    return false;
  }
  const bool for_fleet = access == static_cast<int>(Access::kFleet) || (access != static_cast<int>(Access::kOpen) && !secret_.empty());
  if (for_fleet && !of_fleet) {
    metrics().refused.add(Refused::kUnauthorized);
    call.fail(
        ApiError::unauthorized("This instance takes requests from its router and from other instances alone, which know its secret."));
    return false;
  }
  if (access == static_cast<int>(Access::kFleet)) return true;
  if (access == static_cast<int>(Access::kOpen) || !keys_->required()) return true;
  const std::string_view key = key_of(call.request());
  const auto tenant = key.empty() ? std::nullopt : keys_->find(key);
  if (!tenant) {
    metrics().refused.add(Refused::kUnauthorized);
    call.add_header("www-authenticate", "Bearer");
    call.fail(ApiError::unauthorized(key.empty() ? "A key is needed: Authorization: Bearer KEY." : "This key is not known here."));
    return false;
  }
  call.tenant = *tenant;
  if (access == static_cast<int>(Access::kAdmin) && keys_->has_admin() && !tenant->admin) {
    metrics().refused.add(Refused::kUnauthorized);
    call.fail({.status = 403, .type = "permission_error", .code = "forbidden", .message = "This needs an administrator's key."});
    return false;
  }
  return true;
}

bool Server::read_deadline(Call& call) {
  int64_t limit_ms = options_.settings.request_timeout_ms;
  if (const std::string_view given = call.request().header("x-request-timeout-ms"); !given.empty()) {
    int64_t asked = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), asked);
    if (error != std::errc() || end != given.data() + given.size() || asked < 1) {
      call.fail(ApiError::field("x-request-timeout-ms", "must be a whole number of milliseconds, at least 1"));
      return false;
    }
    limit_ms = limit_ms > 0 ? std::min(limit_ms, asked) : asked;
  }
  constexpr int64_t kMostMs = int64_t{1} << 40;
  if (limit_ms > 0)
    call.deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count() +
                    std::min(limit_ms, kMostMs) * 1'000'000;
  return true;
}

Server::CallNumber Server::next_number() {
  const uint64_t n = calls_.fetch_add(1, std::memory_order_relaxed);
  const PhiloxBlock block = philox(call_key_, {static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), 1, 0});
  return {uint64_t{block[0]} << 32 | block[1], uint64_t{block[2]} << 32 | block[3]};
}

// In the shape of the API that was asked, as if an endpoint had said it.
http::Response Server::refusal(int status, std::string_view message, const http::Request* head) {
  const http::Request none;
  const http::Request& request = head != nullptr ? *head : none;
  const CallNumber number = next_number();
  const std::string id = http::request_id(request, fmt::format("{:016x}{:016x}", number.high, number.low));
  http::Response answer{.status = status, .headers = {{"x-request-id", id}}};
  if (status == 503) answer.headers.emplace_back("retry-after", "1");
  cors_.decorate(request, answer.headers);
  answer.content_type = "application/json";
  answer.body = api::error_body(api::dialect_of(request.path), ApiError::of_http(status, std::string(message)), id);
  return answer;
}

void Server::handle(std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  if (http::Cors::is_preflight(request)) return exchange->respond(cors_.preflight(request));
  const Route* route = nullptr;
  std::string methods;  // of this path
  for (const Route& r : all_routes()) {
    const bool folder = r.path.size() > 1 && r.path.ends_with('/');
    const bool matches = folder ? request.path.starts_with(r.path) && request.path.size() > r.path.size() : r.path == request.path;
    if (!matches) continue;
    methods += fmt::format("{}{}", methods.empty() ? "" : ", ", r.method == "GET" ? "GET, HEAD" : r.method);
    if (r.method == request.method || (request.method == "HEAD" && r.method == "GET")) route = &r;
  }
  const CallNumber number = next_number();
  const bool quiet = route != nullptr && (route->access == Access::kOpen || route->access == Access::kFleet);  // probes, scrapes, messages
  const Call::Surroundings around{metrics(), cors_, answer_memory_, options_.settings.log_requests && !quiet};
  auto call = std::make_shared<Call>(around, std::move(exchange), number.high, number.low);
  call->dialect = api::dialect_of(call->request().path);
  if (route == nullptr) {
    metrics().refused.add(Refused::kNotFound);
    if (methods.empty()) return call->fail(ApiError::not_found("There is no such endpoint here."));
    call->add_header("allow", methods);
    return call->fail(ApiError::method_not_allowed(fmt::format("{} does not take {}.", call->request().path, call->request().method)));
  }
  call->endpoint = route->path;
  if (!authorise(*call, static_cast<int>(route->access))) return;
  if (route->method == "POST") {
    if (cors_.is_foreign(call->request())) {
      metrics().refused.add(Refused::kUnauthorized);
      return call->fail({.status = 403,
                         .type = "permission_error",
                         .code = "forbidden",
                         .message = fmt::format("Pages of {} may not use this server; --allowed-origins names those that may.",
                                                call->request().header("origin"))});
    }
    if (draining_ && route->access != Access::kFleet) {
      metrics().refused.add(Refused::kDraining);
      return call->fail(ApiError::overloaded("The server is ending; send the request elsewhere."));
    }
    const std::string_view coding = call->request().header("content-encoding");
    if (!coding.empty() && !http::equal_names(coding, "identity")) {
      metrics().refused.add(Refused::kInvalid);
      return call->fail({.status = 415,
                         .code = "unsupported_content_encoding",
                         .message = fmt::format("Content-Encoding: {}: bodies are taken as they are; send it uncompressed.", coding)});
    }
    if (!read_deadline(*call)) return;
  }
  if (route->generates && !takes_requests(*call)) return;
  call->watch();
  route->endpoint(*this, call);
}

}  // namespace baton::server
