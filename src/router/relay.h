// One request of a client on its way through the router: the choice of an instance, the answer's bytes handed on, another instance where
// the first fails, and an error where nothing else is left. What the client gets with 200 is whole, or its last event says that it is not.
//
//   until the first event of a stream, or the end of a whole answer    the client has got nothing: another instance may answer
//   from then on                                                       an instance that fails ends the stream with an error event
//
// Everything runs on the client loop's thread, but for the making.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "http/client_loop.h"
#include "http/exchange.h"
#include "router/hub.h"

namespace baton::router {

class Relay final : public http::Receiver, public std::enable_shared_from_this<Relay> {
 public:
  // `number`: 32 hexadecimal digits that no other request of this process has.
  Relay(const std::shared_ptr<Hub>& hub, std::shared_ptr<http::Exchange> exchange, api::Dialect dialect, const std::string& number,
        std::vector<uint64_t> blocks);

  void begin();
  void client_gone();
  // The instance that it runs at is given up.
  void instance_lost(int instance);
  // The router ends.
  void cut();

  void on_head(int status, const http::HeaderList& headers) override;
  void on_body(std::string_view bytes) override;
  void on_end(const http::CallEnd& end) override;
  bool wants_more() override;

 private:
  enum class Mode : uint8_t { kNone, kRefusal, kWhole, kStream };

  void attempt();
  void leave_instance(Outcome outcome);
  void retry();
  void hand_on(std::string_view events);
  void open_stream();
  void fail(const api::ApiError& error);
  void respond(int status, http::HeaderList headers, std::string content_type, std::string body);
  void finish(Ended ended);
  void release_body();
  http::HeaderList forwarded_headers() const;
  std::string instance_name() const;

  const std::shared_ptr<Hub> hub_;
  const std::shared_ptr<http::Exchange> exchange_;
  const api::Dialect dialect_;
  const std::vector<uint64_t> blocks_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string id_, traceparent_;

  bool ended_ = false;
  int instance_ = -1;  // where it runs, or -1
  std::vector<int> tried_;
  std::string last_instance_;
  http::ClientLoop::CallId call_ = 0;

  // The answer of the present attempt.
  Mode mode_ = Mode::kNone;
  int status_ = 0;
  http::HeaderList headers_;
  std::string content_type_;
  std::string body_;  // of a whole answer, or what has come of the next event
  // Of an attempt before it: what is answered when nobody else can.
  int refused_status_ = 0;
  http::HeaderList refused_headers_;
  std::string refused_type_, refused_body_, problem_;

  std::shared_ptr<http::EventStream> stream_;
  bool begun_ = false;  // the client has an event
  int answered_ = 0;    // the status that it got
};

}  // namespace baton::router
