#include "http/client_loop.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "http/client_loop_impl.h"

namespace baton::http {
namespace {

constexpr std::chrono::milliseconds kAskAgain{10};  // receivers that wanted no more
constexpr std::chrono::milliseconds kTick{50};
constexpr uint64_t kWakeId = 0;

}  // namespace

std::string system_text(int error) { return std::generic_category().message(error); }

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
