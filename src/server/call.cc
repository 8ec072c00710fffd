#include "server/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/log.h"
#include "http/request_ids.h"

namespace baton::server {

Call::Call(const Surroundings& around, std::shared_ptr<http::Exchange> exchange, uint64_t number_high, uint64_t number_low)
    : around_(around), exchange_(std::move(exchange)), number_(fmt::format("{:016x}{:016x}", number_high, number_low)),
      created_(static_cast<int64_t>(std::time(nullptr))) {
  id_ = http::request_id(request(), number_);
  traceparent_ = http::next_traceparent(request(), number_);
}

void Call::watch() {
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto call = weak.lock()) call->client_gone();
  });
}

Call::~Call() {
  if (!around_.log) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  std::vector<LogField> fields;
  fields.emplace_back("request_id", id_);
  fields.emplace_back("method", request().method);
  fields.emplace_back("path", request().path);
  fields.emplace_back("peer", request().peer);
  fields.emplace_back("status", status_.load());
  fields.emplace_back("seconds", seconds);
  if (gone()) fields.emplace_back("client_gone", true);
  if (!error_.empty()) fields.emplace_back("error", error_);
  if (!tenant.name.empty()) fields.emplace_back("tenant", tenant.name);
  if (!traceparent_.empty()) fields.emplace_back("trace_id", traceparent_.substr(3, 32));
  if (usage_.prompt > 0) {
    fields.emplace_back("prompt_tokens", usage_.prompt);
    fields.emplace_back("cached_tokens", usage_.cached);
    fields.emplace_back("completion_tokens", usage_.completion);
  }
  log_event(LogLevel::kInfo, "request", fields);
}

void Call::add_header(std::string name, std::string value) { headers_.emplace_back(std::move(name), std::move(value)); }

void Call::ignored(const std::vector<std::string>& fields) {
  if (fields.empty()) return;
  around_.metrics.ignored_fields.fetch_add(static_cast<int64_t>(fields.size()), std::memory_order_relaxed);
  constexpr size_t kMostBytes = 1024;
  std::string list;
  for (const std::string& f : fields) {
    std::string shown = f;
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c <= ' ' || c >= 0x7F || c == ','; }, '?');
    if (list.size() + shown.size() > kMostBytes) {
      list += ", ...";
      break;
    }
    list += (list.empty() ? "" : ", ") + shown;
  }
  add_header("x-ignored-fields", std::move(list));
}

http::HeaderList Call::headers_of_answer(int status) {
  status_ = status;
  http::HeaderList headers = std::move(headers_);
  headers.emplace_back("x-request-id", id_);
  if (!traceparent_.empty()) headers.emplace_back("traceparent", traceparent_);
  if (status == 429 || status == 503) headers.emplace_back("retry-after", fmt::format("{}", retry_after_s));
  around_.cors.decorate(request(), headers);
  return headers;
}

void Call::respond(int status, std::string body, std::string_view content_type, std::shared_ptr<const void> held) {
  if (answered_.exchange(true)) return;
  exchange_->respond({.status = status,
                      .headers = headers_of_answer(status),
                      .content_type = std::string(content_type),
                      .body = std::move(body),
                      .held = std::move(held)});
}

void Call::fail(const api::ApiError& error) {
  if (answered_.exchange(true)) return;
  failed(error);
  exchange_->respond({.status = error.status,
                      .headers = headers_of_answer(error.status),
                      .content_type = "application/json",
                      .body = api::error_body(dialect, error, id_)});
}

std::shared_ptr<http::EventStream> Call::stream() {
  answered_ = true;
  stage_ = Stage::kAnswering;
  http::HeaderList headers = headers_of_answer(200);
  headers.emplace_back("cache-control", "no-cache");
  headers.emplace_back("x-accel-buffering", "no");  // nginx would gather events
  return exchange_->stream({.status = 200, .headers = std::move(headers), .content_type = "text/event-stream; charset=utf-8"});
}

void Call::own(const std::shared_ptr<Generation>& generation) {
  {
    const std::lock_guard lock(mutex_);
    if (stage_ == Stage::kPreparing) stage_ = Stage::kWaiting;
    generations_.push_back(generation);
    if (!cancelled_) return;
  }
  generation->cancel();
}

void Call::client_gone() {
  gone_ = true;
  around_.metrics.cancelled.add(stage_.load());
  cancel();
}

void Call::cancel() {
  std::vector<std::weak_ptr<Generation>> generations;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    generations.swap(generations_);
  }
  for (const auto& weak : generations)
    if (const auto g = weak.lock()) g->cancel();
}

}  // namespace baton::server
