// The server: a listener, the table of endpoints, and what all of them share.
//
//   listener's thread   finds the endpoint, checks key and limits, hands the body on
//   prepare threads     read, render, tokenise; a form is compiled on threads of its own
//   output threads      tokens to text to the client
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "api/limits.h"
#include "base/result.h"
#include "fleet/post.h"
#include "http/cors.h"
#include "http/listener.h"
#include "server/api_keys.h"
#include "server/call.h"
#include "server/service.h"
#include "server/settings.h"
#include "server/work_pool.h"

namespace baton::server {

struct ServerOptions {
  Settings settings;
  std::string version;
  std::string description;       // of model, memory and build, as JSON members for /server_info; may be empty
  fleet::Post* fleet = nullptr;  // of a prefill or decode instance; outlives the server
};

class Server {
 public:
  // Settings that exclude each other, and files of keys and secrets that cannot be read. Part of start().
  static Status check(const Settings& settings);
  // Listens when it returns. `service` outlives it.
  static Result<std::unique_ptr<Server>> start(Service& service, const ServerOptions& options);
  // Ends everything at once.
  ~Server();

  uint16_t port() const { return listener_->port(); }

  // No new connections; /readyz says no. Requests that are under way go on.
  void begin_drain();
  // Waits for them; true if all have ended. Called again, it goes on waiting.
  bool drain(std::chrono::steady_clock::time_point deadline);
  // What still runs ends with an error that says so.
  void cancel_all();
  // Keys and certificates, from their files. What cannot be read stays as it was.
  Status reload();

  // For the endpoints.
  Service& service() const { return service_; }
  const Settings& settings() const { return options_.settings; }
  const ServerOptions& options() const { return options_; }
  const api::ParseLimits& parse_limits() const { return parse_limits_; }
  Metrics& metrics() const { return service_.metrics(); }
  MetricSources metric_sources() const;
  // Why the server cannot take requests now; empty if it can.
  std::string unready();
  Caller caller(const Call& call) const {
    return {.tenant = call.tenant.name, .deadline = call.deadline, .timing = call.request().header("x-timing") == "1"};
  }
  // On a prepare thread; 503 if too many wait.
  void prepare(const std::shared_ptr<Call>& call, std::function<void()> work);
  // On a thread that may wait for the compiler of grammars.
  void form(const std::shared_ptr<Call>& call, std::function<void()> work);
  // The model that a request names; empty is fine, too.
  bool check_model(Call& call, const std::string& name);

 private:
  Server(Service& service, const ServerOptions& options);
  void handle(std::shared_ptr<http::Exchange> exchange);
  http::Response refusal(int status, std::string_view message, const http::Request* head);
  struct CallNumber {
    uint64_t high, low;
  };
  CallNumber next_number();
  bool authorise(Call& call, int access);
  bool is_of_fleet(const http::Request& request) const;
  bool takes_requests(Call& call);
  bool is_at_work() const;
  bool read_deadline(Call& call);
  void run(WorkPool& pool, const std::shared_ptr<Call>& call, std::function<void()> work);

  Service& service_;
  const ServerOptions options_;
  api::ParseLimits parse_limits_;
  AnswerMemory answer_memory_;
  std::unique_ptr<ApiKeys> keys_;
  std::string secret_;  // of the fleet; may be empty
  http::Cors cors_;
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> calls_{0};
  uint64_t call_key_;
  std::mutex stall_mutex_;
  int64_t stall_cycles_ = -1;
  std::chrono::steady_clock::time_point stall_since_;
  WorkPool prepare_;
  WorkPool form_;
  std::unique_ptr<http::Listener> listener_;  // first to go
};

}  // namespace baton::server
