#include "http/client_loop.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "http/response_reader.h"
#include "http/transport.h"

namespace baton::http {

using Clock = std::chrono::steady_clock;

namespace {

constexpr Clock::time_point kNoDeadline = Clock::time_point::max();
constexpr std::chrono::milliseconds kAskAgain{10};  // receivers that wanted no more
constexpr std::chrono::milliseconds kTick{50};
constexpr uint64_t kWakeId = 0;

std::string system_text(int error) { return std::generic_category().message(error); }

// One connection. It belongs to a call, or lies idle.
struct Link {
  enum class State { kConnecting, kHandshake, kBusy, kIdle, kTaken };  // taken: out of the idle ones, its call has not begun

  ~Link() {
    transport.reset();
    if (fd >= 0) ::close(fd);
  }

  uint64_t id = 0;
  int fd = -1;
  std::string server;  // whose connections may stand in for each other
  State state = State::kConnecting;
  std::optional<Transport> transport;
  uint32_t events = 0;  // what epoll watches
  Clock::time_point deadline = kNoDeadline;
  bool closed = false;
  bool kept = false;  // has served a call before this one

  // The call.
  ClientLoop::CallId call_id = 0;
  std::optional<OutgoingCall> call;
  std::shared_ptr<Receiver> receiver;
  std::optional<ResponseReader> reader;
  std::string head;
  size_t sent = 0;
  bool sending = false;
  bool heard = false;
  bool head_told = false;
  bool paused = false;
};
using LinkPtr = std::shared_ptr<Link>;

}  // namespace

Result<Endpoint> Endpoint::resolve(const Url& url) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int resolved = ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
  if (resolved != 0)
    return Error{.kind = Error::Kind::kIo,
                 .message = fmt::format("The name '{}' cannot be resolved ({}).", url.host, gai_strerror(resolved))};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  Endpoint e{.host = url.host, .port = url.port, .tls = url.tls};
  e.address_bytes = found->ai_addrlen;
  std::memcpy(&e.address, found->ai_addr, found->ai_addrlen);
  return e;
}

std::string Endpoint::authority() const {
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

class ClientLoop::Impl {
 public:
  explicit Impl(ClientLoopOptions options) : options_(std::move(options)) {}
  ~Impl() {
    stop();
    links_.clear();
    if (epoll_ >= 0) ::close(epoll_);
    if (wake_ >= 0) ::close(wake_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status start();
  void stop() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    wake();
    thread_.join();
  }
  void post(std::function<void()> task);
  CallId call(OutgoingCall call, std::shared_ptr<Receiver> receiver);
  void cancel(CallId id);
  void on_tick(std::function<void()> tick) { on_tick_ = std::move(tick); }
  ClientLoopCounters counters() const {
    return {.open = static_cast<int64_t>(calls_.size()), .idle = idle_count_, .connects = connects_, .reuses = reuses_};
  }

 private:
  void run();
  void run_tasks();
  void tick();
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  }

  void begin(const LinkPtr& link);
  void open(const LinkPtr& link);
  LinkPtr idle_link(const std::string& server);
  void watch(Link& link, uint32_t events);
  void close(const LinkPtr& link, bool reset);
  void on_event(const LinkPtr& link, uint32_t events);
  void shake_hands(const LinkPtr& link);
  void progress(const LinkPtr& link);
  bool send(const LinkPtr& link);
  bool read(const LinkPtr& link);
  void feed(const LinkPtr& link, std::string_view bytes);
  void fail(const LinkPtr& link, std::string_view what, bool refused = false);
  void complete(const LinkPtr& link);
  void end_call(const LinkPtr& link, CallEnd end);
  void pause(const LinkPtr& link) {
    if (!std::exchange(link->paused, true)) paused_.push_back(link);
  }
  void touch(Link& link) { link.deadline = link.call->silence_timeout.count() > 0 ? now_ + link.call->silence_timeout : kNoDeadline; }

  const ClientLoopOptions options_;
  std::shared_ptr<const TlsContext> tls_;
  int epoll_ = -1;
  int wake_ = -1;
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;

  // The loop's own.
  std::unordered_map<uint64_t, LinkPtr> links_;
  std::unordered_map<CallId, LinkPtr> calls_;
  std::vector<std::function<void()>> soon_;
  std::unordered_map<std::string, std::vector<LinkPtr>> idle_;  // the last one was used last
  std::vector<LinkPtr> paused_;
  std::function<void()> on_tick_;
  int64_t idle_count_ = 0, connects_ = 0, reuses_ = 0;
  uint64_t next_link_ = 1;
  CallId next_call_ = 1;
  std::string scratch_ = std::string(64 << 10, '\0');
  Clock::time_point now_ = Clock::now();
  Clock::time_point next_tick_ = Clock::now();
};

Status ClientLoop::Impl::start() {
  const auto failed = [] {
    return Error{.kind = Error::Kind::kExhausted, .message = fmt::format("The system refused a descriptor: {}.", system_text(errno))};
  };
  BATON_ASSIGN(tls_, TlsContext::for_client(options_.tls));
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return failed();
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_ < 0) return failed();
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeId}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) return failed();
  thread_ = std::thread([this] { run(); });
  return {};
}

void ClientLoop::Impl::post(std::function<void()> task) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first) wake();
}

void ClientLoop::Impl::run_tasks() {
  // What calls leave behind each other is done before the sockets are looked at again; nothing of it goes on for ever.
  std::vector<std::function<void()>> tasks;
  do {
    tasks.clear();
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
    tasks.clear();
    tasks.swap(soon_);
    for (const auto& task : tasks) task();
  } while (!soon_.empty());
}

void ClientLoop::Impl::run() {
  constexpr int kBatch = 256;
  epoll_event events[kBatch];
  while (!stopping_) {
    const auto until = std::chrono::duration_cast<std::chrono::milliseconds>(next_tick_ - now_).count() + 1;
    const auto wait = paused_.empty() ? until : std::min<int64_t>(until, kAskAgain.count());
    const int n = ::epoll_wait(epoll_, events, kBatch, static_cast<int>(std::max<int64_t>(wait, 0)));
    now_ = Clock::now();
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == kWakeId) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t r = ::read(wake_, &count, sizeof count);
        continue;
      }
      // One that an event before it has closed is not there any more.
      const auto found = links_.find(events[i].data.u64);
      if (found == links_.end()) continue;
      const LinkPtr link = found->second;
      on_event(link, events[i].events);
    }
    run_tasks();
    const std::vector<LinkPtr> asked = std::exchange(paused_, {});
    for (const LinkPtr& link : asked) {
      if (link->closed || !link->paused || link->state != Link::State::kBusy) continue;
      link->paused = false;
      progress(link);
    }
    run_tasks();
    if (now_ >= next_tick_) {
      tick();
      run_tasks();
    }
  }
  // Whoever posts from now on is not heard; what is held goes without a word.
  soon_.clear();
  calls_.clear();
  idle_.clear();
  paused_.clear();
}

void ClientLoop::Impl::tick() {
  next_tick_ = now_ + kTick;
  std::vector<LinkPtr> late;
  for (const auto& [id, link] : links_)
    if (now_ >= link->deadline && !link->paused) late.push_back(link);
  for (const LinkPtr& link : late) {
    if (link->closed) continue;
    switch (link->state) {
      case Link::State::kIdle: close(link, false); break;
      case Link::State::kConnecting: fail(link, "the server could not be reached in time"); break;
      case Link::State::kHandshake: fail(link, "the TLS handshake did not end in time"); break;
      case Link::State::kBusy: fail(link, "the server has gone silent"); break;
      case Link::State::kTaken: break;
    }
  }
  if (on_tick_) on_tick_();
}

// --- calls

ClientLoop::CallId ClientLoop::Impl::call(OutgoingCall call, std::shared_ptr<Receiver> receiver) {
  const std::string server = fmt::format("{}{}", call.endpoint.tls ? "s" : "", call.endpoint.authority());
  LinkPtr link = idle_link(server);
  const bool fresh = link == nullptr;
  if (fresh) {
    link = std::make_shared<Link>();
    link->id = next_link_++;
    link->server = server;
    links_.emplace(link->id, link);
  } else {
    ++reuses_;
  }
  link->kept = !fresh;
  link->call_id = next_call_++;
  link->head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", call.method, call.target, call.endpoint.authority());
  for (const auto& [name, value] : call.headers) link->head.append(name).append(": ").append(value).append("\r\n");
  if (!call.body.empty() || (call.method != "GET" && call.method != "HEAD"))
    fmt::format_to(std::back_inserter(link->head), "Content-Length: {}\r\n", call.body.size());
  link->head += "\r\n";
  link->receiver = std::move(receiver);
  link->call = std::move(call);
  calls_[link->call_id] = link;
  // What goes wrong at once is told later, when the caller knows the id.
  soon_.push_back([this, link, fresh] {
    if (link->closed) return;
    if (fresh) return open(link);
    begin(link);
  });
  return link->call_id;
}

void ClientLoop::Impl::begin(const LinkPtr& link) {
  link->state = Link::State::kBusy;
  link->reader.emplace(link->call->method == "HEAD");
  link->sent = 0;
  link->sending = true;
  link->heard = link->head_told = link->paused = false;
  touch(*link);
  progress(link);
}

void ClientLoop::Impl::open(const LinkPtr& link) {
  ++connects_;
  const Endpoint& to = link->call->endpoint;
  link->state = Link::State::kConnecting;
  link->deadline = now_ + options_.connect_timeout;
  link->fd = ::socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (link->fd < 0) return fail(link, system_text(errno));
  const int on = 1;
  ::setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(link->fd, reinterpret_cast<const sockaddr*>(&to.address), to.address_bytes) != 0 && errno != EINPROGRESS)
    return fail(link, system_text(errno), errno == ECONNREFUSED);
  watch(*link, EPOLLOUT);
}

LinkPtr ClientLoop::Impl::idle_link(const std::string& server) {
  const auto found = idle_.find(server);
  if (found == idle_.end() || found->second.empty()) return nullptr;
  LinkPtr link = found->second.back();
  found->second.pop_back();
  link->state = Link::State::kTaken;
  --idle_count_;
  if (found->second.empty()) idle_.erase(found);
  return link;
}

void ClientLoop::Impl::watch(Link& link, uint32_t events) {
  if (link.events == events) return;
  epoll_event event{.events = events, .data = {.u64 = link.id}};
  ::epoll_ctl(epoll_, link.events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, link.fd, &event);
  link.events = events;
}

void ClientLoop::Impl::close(const LinkPtr& link, bool reset) {
  if (std::exchange(link->closed, true)) return;
  if (link->state == Link::State::kIdle) {
    const auto found = idle_.find(link->server);
    if (found != idle_.end()) {
      idle_count_ -= static_cast<int64_t>(std::erase(found->second, link));
      if (found->second.empty()) idle_.erase(found);
    }
  }
  if (link->call_id != 0) calls_.erase(link->call_id);
  link->receiver.reset();
  link->call.reset();
  if (link->fd >= 0) {
    watch(*link, 0);
    const linger at_once{1, 0};
    if (reset) ::setsockopt(link->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    link->transport.reset();
    ::close(std::exchange(link->fd, -1));
  }
  links_.erase(link->id);
}

void ClientLoop::Impl::cancel(CallId id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  const LinkPtr link = found->second;
  close(link, true);
}

// --- one connection

void ClientLoop::Impl::on_event(const LinkPtr& link, uint32_t) {
  switch (link->state) {
    case Link::State::kIdle: return close(link, false);  // the server closes it, or says what nobody asked for
    case Link::State::kTaken: return;                    // seen when its call begins
    case Link::State::kHandshake: return shake_hands(link);
    case Link::State::kBusy: return progress(link);
    case Link::State::kConnecting: break;
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return fail(link, system_text(error), error == ECONNREFUSED);
  const Endpoint& to = link->call->endpoint;
  if (!to.tls) {
    link->transport.emplace(link->fd);
    return begin(link);
  }
  link->transport.emplace(link->fd, tls_->connect(to.host));
  link->state = Link::State::kHandshake;
  shake_hands(link);
}

void ClientLoop::Impl::shake_hands(const LinkPtr& link) {
  switch (link->transport->handshake().state) {
    case IoState::kDone: return begin(link);
    case IoState::kWantRead: return watch(*link, EPOLLIN);
    case IoState::kWantWrite: return watch(*link, EPOLLOUT);
    default: {
      const std::string problem = certificate_problem(link->transport->tls());
      return fail(link,
                  fmt::format("no TLS connection ({})", problem.empty() ? last_tls_error("the server closed the connection") : problem));
    }
  }
}

// Sends and listens at once: a server may refuse a long body before it has all of it.
void ClientLoop::Impl::progress(const LinkPtr& link) {
  bool wants_write = false;
  if (link->sending) {
    wants_write = send(link);
    if (link->closed) return;
  }
  const bool wants_read = read(link);
  if (link->closed || link->state != Link::State::kBusy) return;
  watch(*link, (wants_read ? uint32_t{EPOLLIN} : 0U) | (wants_write ? uint32_t{EPOLLOUT} : 0U));
}

// Whether it waits for the socket to take more.
bool ClientLoop::Impl::send(const LinkPtr& link) {
  const size_t all = link->head.size() + link->call->body.size();
  while (link->sent < all) {
    const bool in_body = link->sent >= link->head.size();
    const std::string_view first =
        in_body ? link->call->body.substr(link->sent - link->head.size()) : std::string_view(link->head).substr(link->sent);
    const IoResult result = link->transport->write(first, in_body ? std::string_view() : link->call->body);
    link->sent += result.bytes;
    if (result.state == IoState::kDone) {
      touch(*link);
      continue;
    }
    if (result.state == IoState::kWantWrite) return true;
    if (result.state == IoState::kWantRead) return false;
    break;  // there may be an answer that says why
  }
  link->sending = false;
  return false;
}

// Whether it waits for more to come.
bool ClientLoop::Impl::read(const LinkPtr& link) {
  // Some rounds only: others want their turn.
  for (int round = 0; round < 4; ++round) {
    if (!link->receiver->wants_more()) {
      pause(link);
      return false;
    }
    const IoResult result = link->transport->read(scratch_.data(), scratch_.size());
    switch (result.state) {
      case IoState::kWantRead:
      case IoState::kWantWrite: return true;
      case IoState::kFailed:
        // The end without TLS saying so, or a reset, completes nothing.
        fail(link, link->heard ? "the connection was lost in the middle of the answer" : "the connection was lost before the answer");
        return false;
      case IoState::kEnd:
        link->reader->end_of_input();
        if (link->reader->state() == ResponseReader::State::kFailed) {
          fail(link, link->reader->problem());
        } else {
          complete(link);
        }
        return false;
      case IoState::kDone: break;
    }
    touch(*link);
    feed(link, {scratch_.data(), result.bytes});
    if (link->closed || link->state != Link::State::kBusy) return false;
    // Less than asked for: the socket is most likely empty. TLS may hold more.
    if (!link->call->endpoint.tls && result.bytes < scratch_.size()) return true;
  }
  if (link->call->endpoint.tls) pause(link);  // what OpenSSL has read does not make the socket readable again
  return true;
}

void ClientLoop::Impl::feed(const LinkPtr& link, std::string_view bytes) {
  link->heard = true;
  const auto receiver = link->receiver;  // it may cancel its call
  const auto tell_head = [&] {
    if (std::exchange(link->head_told, true)) return;
    receiver->on_head(link->reader->status(), link->reader->headers());
  };
  link->reader->feed(bytes, [&](std::string_view part) {
    if (link->closed) return;
    tell_head();
    if (!link->closed) receiver->on_body(part);
  });
  if (link->closed) return;
  switch (link->reader->state()) {
    case ResponseReader::State::kHead: return;
    case ResponseReader::State::kBody: return tell_head();
    case ResponseReader::State::kComplete:
      tell_head();
      if (!link->closed) complete(link);
      return;
    case ResponseReader::State::kFailed: return fail(link, link->reader->problem());
  }
}

void ClientLoop::Impl::fail(const LinkPtr& link, std::string_view what, bool refused) {
  // The server may have closed a kept connection just when it was used again. It has then read nothing of the call, or dropped it.
  if (link->kept && !link->heard) {
    const auto fresh = std::make_shared<Link>();
    fresh->id = next_link_++;
    fresh->server = link->server;
    fresh->call_id = std::exchange(link->call_id, 0);
    fresh->call = std::move(link->call);
    fresh->receiver = std::move(link->receiver);
    fresh->head = std::move(link->head);
    calls_[fresh->call_id] = fresh;
    links_.emplace(fresh->id, fresh);
    close(link, true);
    return open(fresh);
  }
  end_call(link, {.problem = fmt::format("{}: {}", link->call->endpoint.authority(), what), .refused = refused});
}

void ClientLoop::Impl::complete(const LinkPtr& link) {
  const auto found = idle_.find(link->server);
  const bool keep = link->reader->reusable() && !link->sending && (found == idle_.end() || found->second.size() < options_.idle_per_server);
  if (!keep) return end_call(link, {.complete = true});
  const auto receiver = std::move(link->receiver);
  calls_.erase(std::exchange(link->call_id, 0));
  const auto call = std::exchange(link->call, std::nullopt);
  link->receiver = nullptr;
  link->reader.reset();
  link->head = {};
  link->state = Link::State::kIdle;
  link->deadline = now_ + options_.idle_timeout;
  watch(*link, EPOLLIN | EPOLLRDHUP);
  idle_[link->server].push_back(link);
  ++idle_count_;
  receiver->on_end({.complete = true});
}

void ClientLoop::Impl::end_call(const LinkPtr& link, CallEnd end) {
  const auto receiver = link->receiver;
  close(link, !end.complete);
  receiver->on_end(end);
}

// --- the handle

ClientLoop::ClientLoop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ClientLoop::~ClientLoop() = default;

Result<std::unique_ptr<ClientLoop>> ClientLoop::start(ClientLoopOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  BATON_TRY(impl->start());
  return std::unique_ptr<ClientLoop>(new ClientLoop(std::move(impl)));
}

void ClientLoop::stop() { impl_->stop(); }
void ClientLoop::post(std::function<void()> task) { impl_->post(std::move(task)); }
ClientLoop::CallId ClientLoop::call(OutgoingCall call, std::shared_ptr<Receiver> receiver) {
  return impl_->call(std::move(call), std::move(receiver));
}
void ClientLoop::cancel(CallId id) { impl_->cancel(id); }
void ClientLoop::on_tick(std::function<void()> tick) { impl_->on_tick(std::move(tick)); }
ClientLoopCounters ClientLoop::counters() const { return impl_->counters(); }

}  // namespace baton::http
