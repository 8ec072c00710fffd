// One request of a client on its way through the server: its ids, who asked, how it is answered, what is logged of it at the end.
//
// Any thread may answer; the first answer counts. What is under way for it is cancelled when its client goes.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer.h"
#include "api/error.h"
#include "http/cors.h"
#include "http/exchange.h"
#include "server/answer_memory.h"
#include "server/api_keys.h"
#include "server/generation.h"
#include "server/metrics.h"

namespace baton::server {

class Call : public std::enable_shared_from_this<Call> {
 public:
  struct Surroundings {  // they outlive it
    Metrics& metrics;
    const http::Cors& cors;
    AnswerMemory& memory;
    bool log = true;
  };
  Call(const Surroundings& around, std::shared_ptr<http::Exchange> exchange, uint64_t number_high, uint64_t number_low);
  // Logs, and counts a client that went away.
  ~Call();
  // Once, before anything else: from now on it hears when the client goes.
  void watch();

  const http::Request& request() const { return exchange_->request(); }
  // Of the client, or made here; in every answer as x-request-id.
  const std::string& id() const { return id_; }
  // 32 hexadecimal digits that no other call of this process has; for the ids of answers.
  const std::string& number() const { return number_; }
  int64_t created() const { return created_; }  // seconds since 1970
  bool gone() const { return gone_.load(); }

  // Set by the server before a handler runs.
  std::string_view endpoint;
  api::Dialect dialect = api::Dialect::kOpenAi;
  Tenant tenant;
  sched::Time deadline = sched::kNever;
  std::string model;  // for the log
  int64_t retry_after_s = 1;

  void add_header(std::string name, std::string value);
  void ignored(const std::vector<std::string>& fields);  // named in a header

  // `held` is let go of when the answer has been sent.
  void respond(int status, std::string body, std::string_view content_type = "application/json", std::shared_ptr<const void> held = {});
  void fail(const api::ApiError& error);
  // The head is sent at once.
  std::shared_ptr<http::EventStream> stream();

  // It is cancelled when the client goes, at once if it has gone.
  void own(const std::shared_ptr<Generation>& generation);
  // What runs for it, where its answer has ended early.
  void cancel();
  std::shared_ptr<AnswerMemory::Share> memory_share() const { return std::make_shared<AnswerMemory::Share>(around_.memory); }
  void used(const api::Usage& usage) { usage_ = usage; }  // for the log; before the answer
  void failed(const api::ApiError& error) { error_ = error.code.empty() ? error.type : error.code; }

 private:
  void client_gone();
  http::HeaderList headers_of_answer(int status);

  const Surroundings around_;
  const std::shared_ptr<http::Exchange> exchange_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string number_, id_, traceparent_;
  int64_t created_;
  http::HeaderList headers_;
  std::atomic<bool> answered_{false}, gone_{false};
  std::atomic<int> status_{0};
  std::atomic<Stage> stage_{Stage::kPreparing};
  api::Usage usage_;
  std::string error_;

  std::mutex mutex_;
  bool cancelled_ = false;
  std::vector<std::weak_ptr<Generation>> generations_;
};

}  // namespace baton::server
