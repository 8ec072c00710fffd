#include "router/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "http/request_ids.h"

namespace baton::router {
namespace {

using api::ApiError;

// An event is handed on when it is complete; one that is longer ends its stream.
constexpr size_t kMostEventBytes = size_t{16} << 20;

// Fields that belong to one connection, or that each hop writes for itself. Of a request also what is said to the router alone.
constexpr std::array<std::string_view, 13> kHopFields{
    "connection",         "keep-alive", "proxy-connection",    "te",   "trailer", "upgrade", "transfer-encoding", "content-length",
    "proxy-authenticate", "date",       "proxy-authorization", "host", "expect"};
constexpr std::array<std::string_view, 5> kReplacedFields{"x-request-id", "traceparent", http::kFleetSecretHeader, "x-baton-prefill",
                                                          "origin"};

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view n) { return http::equal_names(n, name); });
}

// Full, draining, or in front of an instance that is: another one may have room.
bool is_refusal(int status) { return status == 429 || status == 502 || status == 503 || status == 504; }

// Where the last whole event ends.
size_t end_of_events(std::string_view bytes) {
  const size_t end = bytes.rfind("\n\n");
  return end == std::string_view::npos ? 0 : end + 2;
}

// Comments keep a connection alive and say nothing.
bool only_comments(std::string_view events) {
  while (!events.empty()) {
    const size_t end = std::min(events.find('\n'), events.size());
    if (end > 0 && events.front() != ':') return false;
    events.remove_prefix(std::min(end + 1, events.size()));
  }
  return true;
}

}  // namespace

Relay::Relay(const std::shared_ptr<Hub>& hub, std::shared_ptr<http::Exchange> exchange, api::Dialect dialect, const std::string& number,
             std::vector<uint64_t> blocks)
    : hub_(hub), exchange_(std::move(exchange)), dialect_(dialect), blocks_(std::move(blocks)),
      id_(http::request_id(exchange_->request(), number)), traceparent_(http::next_traceparent(exchange_->request(), number)) {}

void Relay::begin() {
  hub_->relays.emplace(this, shared_from_this());
  if (exchange_->gone()) return finish(Ended::kClientGone);
  attempt();
}

http::HeaderList Relay::forwarded_headers() const {
  http::HeaderList out;
  for (const auto& [name, value] : exchange_->request().headers)
    if (!is_one_of(name, kHopFields) && !is_one_of(name, kReplacedFields)) out.emplace_back(name, value);
  out.emplace_back("x-request-id", id_);
  if (!traceparent_.empty()) out.emplace_back("traceparent", traceparent_);
  hub_->add_fleet_headers(instance_, out);
  return out;
}

std::string Relay::instance_name() const { return hub_->endpoints[static_cast<size_t>(instance_)].authority(); }

void Relay::attempt() {
  const TimeMs now = Hub::now();
  const bool may_try = static_cast<int64_t>(tried_.size()) < hub_->settings.attempts;
  const auto choice = may_try ? hub_->fleet.choose(blocks_, tried_, hub_->chance(), now) : std::nullopt;
  if (!choice) {
    if (refused_status_ != 0 && stream_ == nullptr) {
      respond(refused_status_, std::move(refused_headers_), std::move(refused_type_), std::move(refused_body_));
      return finish(Ended::kNobody);
    }
    if (tried_.empty()) {
      fail(ApiError::overloaded("No instance is ready; try again later."));
      return finish(Ended::kNobody);
    }
    fail({.status = 502,
          .type = "server_error",
          .code = "no_answer",
          .message = fmt::format("No instance could answer this request; the last one tried: {}.", problem_)});
    return finish(Ended::kBroken);
  }
  if (!tried_.empty()) ++hub_->totals.retries;
  instance_ = choice->instance;
  tried_.push_back(instance_);
  last_instance_ = instance_name();
  hub_->fleet.sent(instance_, blocks_, choice->matched, now);
  mode_ = Mode::kNone;
  const http::Request& request = exchange_->request();
  call_ = hub_->loop->call({.endpoint = hub_->endpoints[static_cast<size_t>(instance_)],
                            .method = request.method,
                            .target = request.query.empty() ? request.path : request.path + "?" + request.query,
                            .headers = forwarded_headers(),
                            .body = request.body,
                            .held = exchange_},
                           shared_from_this());
}

void Relay::on_head(int status, const http::HeaderList& headers) {
  status_ = status;
  headers_.clear();
  content_type_.clear();
  for (const auto& [name, value] : headers) {
    if (http::equal_names(name, "content-type"))
      content_type_ = value;
    else if (!is_one_of(name, kHopFields))
      headers_.emplace_back(name, value);
  }
  hub_->fleet.answering(instance_);
  const bool stream = status == 200 && std::string_view(content_type_).starts_with("text/event-stream");
  mode_ = stream ? Mode::kStream : is_refusal(status) ? Mode::kRefusal : Mode::kWhole;
}

void Relay::on_body(std::string_view bytes) {
  if (ended_) return;
  if (mode_ != Mode::kStream) {
    body_ += bytes;
    hub_->held_bytes += static_cast<int64_t>(bytes.size());
    if (hub_->held_bytes <= hub_->settings.answer_bytes) return;
    leave_instance(Outcome::kUndecided);
    fail(ApiError::overloaded("Answers that wait for their end take all the memory that they may; try again later."));
    return finish(Ended::kBroken);
  }
  // Most of the time whole events come, and nothing has to be kept.
  if (body_.empty() && bytes.ends_with("\n\n")) return hand_on(bytes);
  body_ += bytes;
  const size_t end = end_of_events(body_);
  if (end > 0) {
    const std::string whole = body_.substr(0, end);
    body_.erase(0, end);
    hand_on(whole);
  }
  if (ended_ || body_.size() <= kMostEventBytes) return;
  problem_ = fmt::format("an event is longer than {} bytes", kMostEventBytes);
  leave_instance(Outcome::kFailed);
  retry();
}

void Relay::open_stream() {
  if (stream_ != nullptr) return;
  answered_ = 200;
  http::HeaderList headers = std::move(headers_);
  headers.emplace_back("x-baton-instance", last_instance_);
  hub_->cors.decorate(exchange_->request(), headers);
  stream_ = exchange_->stream({.status = 200, .headers = std::move(headers), .content_type = content_type_});
}

void Relay::hand_on(std::string_view events) {
  open_stream();
  if (!begun_) begun_ = !only_comments(events);
  ++hub_->totals.chunks;
  hub_->totals.bytes += static_cast<int64_t>(events.size());
  if (stream_->write(events)) return;
  // The client is gone, or was too slow and has been cut.
  leave_instance(Outcome::kUndecided);
  finish(Ended::kClientGone);
}

// The event that is coming waits, too, and is handed on as a whole. Once the client has all before it, it may be as long as the bound.
bool Relay::wants_more() {
  const size_t unsent = stream_ == nullptr ? 0 : stream_->unsent();
  if (unsent == 0 || unsent + body_.size() < static_cast<size_t>(hub_->settings.stream_bytes) / 4) return true;
  ++hub_->totals.held_back;
  return false;
}

void Relay::release_body() {
  if (mode_ != Mode::kStream) hub_->held_bytes -= static_cast<int64_t>(body_.size());
  body_.clear();
}

// Its call is over, or ends here.
void Relay::leave_instance(Outcome outcome) {
  if (instance_ < 0) return;
  hub_->loop->cancel(call_);
  const int left = std::exchange(instance_, -1);
  // Is it still there? Others should not have to find out.
  if (outcome == Outcome::kFailed) hub_->probe_at[static_cast<size_t>(left)] = 0;
  hub_->fleet.ended(left, outcome, hub_->jitter(), Hub::now());
}

void Relay::retry() {
  release_body();
  if (!begun_) return attempt();
  ++hub_->totals.streams_broken;
  fail({.status = 502,
        .type = "server_error",
        .code = "broken_off",
        .message = fmt::format("The answer broke off and is not complete: {}.", problem_)});
  finish(Ended::kBroken);
}

void Relay::on_end(const http::CallEnd& end) {
  if (ended_) return;
  const bool partial = mode_ == Mode::kStream && !body_.empty();
  if (!end.complete || partial || mode_ == Mode::kNone) {
    problem_ = !end.complete ? end.problem : fmt::format("{}: the stream ended in the middle of an event", last_instance_);
    leave_instance(Outcome::kFailed);
    return retry();
  }
  if (mode_ == Mode::kRefusal) {
    leave_instance(Outcome::kTurnedAway);
    problem_ = fmt::format("{} answered {}", last_instance_, status_);
    refused_status_ = status_;
    refused_headers_ = std::move(headers_);
    refused_type_ = content_type_;
    refused_body_ = body_;
    return retry();
  }
  leave_instance(Outcome::kServed);
  if (mode_ == Mode::kStream) {
    open_stream();
    stream_->end();
    return finish(Ended::kAnswered);
  }
  if (stream_ != nullptr) {  // comments of an earlier attempt have been sent as a stream already
    problem_ = fmt::format("{} answered {}", last_instance_, status_);
    begun_ = true;
    return retry();
  }
  std::string body = body_;
  release_body();
  hub_->totals.bytes += static_cast<int64_t>(body.size());
  respond(status_, std::move(headers_), content_type_, std::move(body));
  finish(Ended::kAnswered);
}

void Relay::respond(int status, http::HeaderList headers, std::string content_type, std::string body) {
  answered_ = status;
  if (http::find_header(headers, "x-request-id") == nullptr) headers.emplace_back("x-request-id", id_);
  if (!last_instance_.empty()) headers.emplace_back("x-baton-instance", last_instance_);
  hub_->cors.decorate(exchange_->request(), headers);
  exchange_->respond({.status = status, .headers = std::move(headers), .content_type = std::move(content_type), .body = std::move(body)});
}

// As the answer, or as the last event of a stream.
void Relay::fail(const ApiError& error) {
  if (stream_ == nullptr) {
    http::HeaderList headers;
    if (error.status == 503) headers.emplace_back("retry-after", "1");
    return respond(error.status, std::move(headers), "application/json", api::error_body(dialect_, error, id_));
  }
  std::string event;
  api::append_error_event(event, dialect_, error, id_);
  stream_->write(event);
  stream_->end();
}

void Relay::client_gone() {
  if (ended_) return;
  leave_instance(Outcome::kUndecided);
  finish(Ended::kClientGone);
}

void Relay::instance_lost(int instance) {
  if (ended_ || instance_ != instance) return;
  problem_ = fmt::format("{} has gone silent", last_instance_);
  leave_instance(Outcome::kFailed);
  retry();
}

void Relay::cut() {
  if (ended_) return;
  leave_instance(Outcome::kUndecided);
  fail(ApiError::overloaded("The router is ending."));
  finish(Ended::kCut);
}

void Relay::finish(Ended ended) {
  ended_ = true;
  release_body();
  ++hub_->totals.ended[static_cast<size_t>(ended)];
  if (answered_ > 0) ++hub_->totals.answers[static_cast<size_t>(answered_ / 100 % 6)];
  if (hub_->settings.log_requests) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    std::vector<LogField> fields;
    fields.emplace_back("request_id", id_);
    fields.emplace_back("method", exchange_->request().method);
    fields.emplace_back("path", exchange_->request().path);
    fields.emplace_back("peer", exchange_->request().peer);
    fields.emplace_back("status", answered_);
    fields.emplace_back("seconds", seconds);
    if (!last_instance_.empty()) fields.emplace_back("instance", last_instance_);
    if (tried_.size() > 1) fields.emplace_back("attempts", tried_.size());
    if (ended == Ended::kClientGone) fields.emplace_back("client_gone", true);
    if (ended != Ended::kAnswered && ended != Ended::kClientGone && !problem_.empty()) fields.emplace_back("error", problem_);
    if (!traceparent_.empty()) fields.emplace_back("trace_id", traceparent_.substr(3, 32));
    log_event(LogLevel::kInfo, "request", fields);
  }
  stream_.reset();
  hub_->relays.erase(this);  // most likely the last reference but for the caller's
}

}  // namespace baton::router
