#include "http/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "http/connection.h"

namespace baton::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int kBacklog = 4096;
// Descriptors that are not connections: files, loops, what the rest of the program opens.
constexpr rlim_t kOtherDescriptors = 256;

// Raises the soft limit as far as needed and allowed, and lowers `connections` to what fits.
void fit_connections(int& connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(connections) + kOtherDescriptors;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= wanted) return;
  const int fitting = static_cast<int>(limit.rlim_cur > 2 * kOtherDescriptors ? limit.rlim_cur - kOtherDescriptors : limit.rlim_cur / 2);
  log_warning("http: {} connections need {} open files and the system allows {}; at most {} are taken (raise ulimit -n for more)",
              connections, wanted, limit.rlim_cur, fitting);
  connections = fitting;
}

class SocketListener : public Listener {
 public:
  SocketListener(ListenerOptions options, Handler handler) {
    shared_.options = std::move(options);
    shared_.handler = std::move(handler);
  }
  ~SocketListener() override { SocketListener::close(); }

  Status open() override;
  void close() override {
    stop_accepting();
    for (const auto& loop : loops_) loop->stop();
    closed_ = true;
  }
  uint16_t port() const override { return port_; }
  void stop_accepting() override;
  bool drain(Clock::time_point deadline) override;
  Counters counters() const override;
  Status reload_tls() override;

 private:
  Status bind(const tcp::endpoint& endpoint, uint16_t port);
  void accept(tcp::acceptor& acceptor);
  void hand_over(Loop& loop, tcp::socket socket);
  TlsChannel tls_channel();

  Shared shared_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::vector<tcp::acceptor> acceptors_;  // on the first loop
  std::unique_ptr<asio::steady_timer> retry_;
  size_t next_loop_ = 0;
  uint16_t port_ = 0;
  bool accepting_ = true;  // the first loop's
  bool closed_ = false;
  std::mutex tls_mutex_;
  std::shared_ptr<const TlsContext> tls_;
};

Status SocketListener::bind(const tcp::endpoint& endpoint, uint16_t port) {
  const auto fail = [&](const error_code& error) {
    const bool used = error == asio::error::address_in_use;
    return Error{.kind = Error::Kind::kIo,
                 .message = fmt::format("Cannot listen on {} port {}: {}. {}", endpoint.address().to_string(), port, error.message(),
                                        used ? "Stop the program that listens there, or choose another port."
                                             : "Choose an address of this machine, or a port that this user may use.")};
  };
  error_code error;
  tcp::acceptor acceptor(loops_[0]->io);
  acceptor.open(endpoint.protocol(), error);
  if (error) return fail(error);
  acceptor.set_option(asio::socket_base::reuse_address(true), error);
  // "::" stands for all addresses, of both kinds.
  if (endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
  acceptor.bind({endpoint.address(), port}, error);
  if (error) return fail(error);
  // Accepted sockets inherit these.
  acceptor.set_option(tcp::no_delay(true), error);
  acceptor.set_option(asio::socket_base::keep_alive(true), error);
  const int fd = acceptor.native_handle();
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  const auto set = [fd](int name, int value) { ::setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value); };
  set(TCP_KEEPIDLE, 30);
  set(TCP_KEEPINTVL, 10);
  set(TCP_KEEPCNT, 3);
  // A peer that has vanished without a word is given up after as long as one that does not read.
  set(TCP_USER_TIMEOUT, static_cast<int>(shared_.options.limits.write_timeout.count()));
  // What a slow reader leaves unsent stays with the stream, where it is counted, rather than in megabytes of the system's.
  set(TCP_NOTSENT_LOWAT, 128 << 10);
  acceptor.listen(kBacklog, error);
  if (error) return fail(error);
  port_ = acceptor.local_endpoint(error).port();
  acceptors_.push_back(std::move(acceptor));
  return Status();
}

Status SocketListener::open() {
  const ListenerOptions& options = shared_.options;
  if (options.threads < 1 || options.threads > 256)
    return Error{.message = fmt::format("The listener cannot run with {} threads; choose 1 to 256.", options.threads)};
  if (options.tls) BATON_TRY(reload_tls());
  fit_connections(shared_.options.limits.connections);
  for (int i = 0; i < options.threads; ++i) loops_.push_back(std::make_unique<Loop>(shared_));
  std::string_view host = options.host;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  // To the system an empty name is all addresses, which nobody has asked for.
  if (host.empty()) return Error{.message = "The host to listen on is empty. Give an address of this machine, 0.0.0.0 or :: for all."};
  error_code error;
  tcp::resolver resolver(loops_[0]->io);
  const auto found = resolver.resolve(host, std::to_string(options.port), tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty())
    return Error{.kind = Error::Kind::kNotFound,
                 .message = fmt::format("Cannot listen on host '{}': {}. Give an address of this machine, 0.0.0.0 or :: for all.",
                                        options.host, error.message())};
  std::optional<Error> first_error;
  for (const auto& entry : found) {
    // A name may have addresses of both kinds, one of which this machine lacks.
    const Status bound = bind(entry.endpoint(), port_ != 0 ? port_ : options.port);
    if (!bound.ok() && !first_error) first_error = bound.error();
  }
  if (acceptors_.empty()) return *first_error;
  retry_ = std::make_unique<asio::steady_timer>(loops_[0]->io);
  for (auto& acceptor : acceptors_) accept(acceptor);
  for (const auto& loop : loops_) loop->start();
  return Status();
}

void SocketListener::accept(tcp::acceptor& acceptor) {
  Loop& loop = *loops_[next_loop_++ % loops_.size()];
  acceptor.async_accept(loop.io, [this, &acceptor, &loop](const error_code& error, tcp::socket socket) {
    if (!accepting_) return;
    if (error && error != asio::error::connection_aborted) {
      // No descriptors, most likely: those that wait stay in the system's queue.
      retry_->expires_after(std::chrono::milliseconds(100));
      retry_->async_wait([this, &acceptor](const error_code& cancelled) {
        if (!cancelled && accepting_) accept(acceptor);
      });
      return;
    }
    if (!error) hand_over(loop, std::move(socket));
    accept(acceptor);
  });
}

void SocketListener::hand_over(Loop& loop, tcp::socket socket) {
  // A program that this one starts must not keep clients waiting for the end of a connection.
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  asio::post(loop.io, [&loop, s = std::move(socket), tls = tls_channel()]() mutable { loop.adopt(std::move(s), std::move(tls)); });
}

Status SocketListener::reload_tls() {
  if (!shared_.options.tls) return Error{.kind = Error::Kind::kUnsupported, .message = "The listener does not speak TLS."};
  BATON_ASSIGN(auto context, TlsContext::for_server(*shared_.options.tls));
  const std::lock_guard lock(tls_mutex_);
  tls_ = std::move(context);
  return Status();
}

TlsChannel SocketListener::tls_channel() {
  if (!shared_.options.tls) return nullptr;
  const std::lock_guard lock(tls_mutex_);
  return tls_->accept();
}

void SocketListener::stop_accepting() {
  if (loops_.empty() || !retry_ || closed_) return;
  std::promise<void> done;
  asio::post(loops_[0]->io, [this, &done] {
    error_code error;
    // Who has connected already and stands in the system's queue would be reset.
    for (auto& acceptor : acceptors_) {
      if (accepting_) acceptor.non_blocking(true, error);
      while (accepting_ && !error) {
        Loop& loop = *loops_[next_loop_++ % loops_.size()];
        tcp::socket socket(loop.io);
        acceptor.accept(socket, error);
        if (!error) hand_over(loop, std::move(socket));
      }
      acceptor.close(error);
    }
    accepting_ = false;
    retry_->cancel();
    done.set_value();
  });
  done.get_future().wait();
}

bool SocketListener::drain(Clock::time_point deadline) {
  stop_accepting();
  for (const auto& loop : loops_) asio::post(loop->io, [&l = *loop] { l.begin_drain(); });
  while (shared_.connections.load() > 0) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

Counters SocketListener::counters() const {
  Counters sum;
  for (const auto& loop : loops_) {
    const LoopCounters& c = loop->counters;
    sum.connections_open += c.connections_open.value();
    sum.requests_open += c.requests_open.value();
    sum.streams_open += c.streams_open.value();
    sum.connections_accepted += c.connections_accepted.value();
    sum.connections_refused += c.connections_refused.value();
    sum.requests += c.requests.value();
    for (int i = 0; i < 6; ++i) sum.answers[i] += c.answers[i].value();
    sum.malformed += c.malformed.value();
    sum.clients_gone += c.clients_gone.value();
    sum.slow_readers += c.slow_readers.value();
    sum.read_timeouts += c.read_timeouts.value();
    sum.tls_failures += c.tls_failures.value();
    sum.bytes_received += c.bytes_received.value();
    sum.bytes_sent += c.bytes_sent.value();
    sum.sends += c.sends.value();
    sum.wake_ups += loop->mailbox->wake_ups();
  }
  return sum;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::start(ListenerOptions options, Handler handler) {
  auto listener = create(std::move(options), std::move(handler));
  BATON_TRY(listener->open());
  return listener;
}

std::unique_ptr<Listener> Listener::create(ListenerOptions options, Handler handler) {
  return std::make_unique<SocketListener>(std::move(options), std::move(handler));
}

}  // namespace baton::http
