#include "http/client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "http/response_reader.h"
#include "http/transport.h"

namespace baton::http {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kAskEvery{100};

std::string system_text(int error) { return std::generic_category().message(error); }

}  // namespace

// One connection, and what the call that uses it has to watch: its deadline and the caller's wish to go on.
class Client::Link {
 public:
  explicit Link(const ClientOptions& options) : options_(options) {}
  ~Link() {
    transport_.reset();
    if (fd_ >= 0) ::close(fd_);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Status open(const TlsContext* tls, const std::function<bool()>& keep_going);
  // Fails if the answer does not come; whether any byte of it came is in heard().
  Status run(const ClientRequest& request, ResponseReader& reader, const std::function<void(std::string_view)>& on_body,
             const bool& enough);
  bool heard() const { return heard_; }
  bool sent_all() const { return sent_all_; }
  // A kept connection that the server has closed meanwhile, or that says what nobody asked for.
  bool stale() const {
    pollfd p{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&p, 1, 0) != 0;
  }

 private:
  Status wait(short events, Clock::time_point deadline, const std::function<bool()>& keep_going, std::string_view what);
  Status connect_to(const addrinfo& address, Clock::time_point deadline, const std::function<bool()>& keep_going);
  Error failure(std::string_view what) const {
    return {.kind = Error::Kind::kIo, .message = fmt::format("{} port {}: {}.", options_.host, options_.port, what)};
  }
  std::string head(const ClientRequest& request) const;

  const ClientOptions options_;
  int fd_ = -1;
  std::optional<Transport> transport_;
  bool heard_ = false;
  bool sent_all_ = false;
};

Status Client::Link::wait(short events, Clock::time_point deadline, const std::function<bool()>& keep_going, std::string_view what) {
  for (;;) {
    if (keep_going && !keep_going()) return Error{.kind = Error::Kind::kIo, .message = "The call was stopped."};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return failure(what);
    pollfd p{.fd = fd_, .events = events, .revents = 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min(left, kAskEvery).count()));
    if (n > 0) return Status();
    if (n < 0 && errno != EINTR) return failure(system_text(errno));
  }
}

Status Client::Link::connect_to(const addrinfo& address, Clock::time_point deadline, const std::function<bool()>& keep_going) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return failure(system_text(errno));
  if (::connect(fd_, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return failure(system_text(errno));
    BATON_TRY(wait(POLLOUT, deadline, keep_going, "the server could not be reached in time"));
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failure(system_text(error));
  }
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return Status();
}

Status Client::Link::open(const TlsContext* tls, const std::function<bool()>& keep_going) {
  const Clock::time_point deadline = Clock::now() + options_.connect_timeout;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  const int resolved = ::getaddrinfo(options_.host.c_str(), std::to_string(options_.port).c_str(), &hints, &found);
  if (resolved != 0) return failure(fmt::format("the name cannot be resolved ({})", gai_strerror(resolved)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  Status connected = failure("the name has no address");
  for (const addrinfo* a = found; a != nullptr && !connected.ok(); a = a->ai_next) connected = connect_to(*a, deadline, keep_going);
  BATON_TRY(connected);
  if (tls == nullptr) {
    transport_.emplace(fd_);
    return Status();
  }
  transport_.emplace(fd_, tls->connect(options_.host));
  for (;;) {
    switch (transport_->handshake().state) {
      case IoState::kDone: return Status();
      case IoState::kWantRead: BATON_TRY(wait(POLLIN, deadline, keep_going, "the TLS handshake did not end in time")); break;
      case IoState::kWantWrite: BATON_TRY(wait(POLLOUT, deadline, keep_going, "the TLS handshake did not end in time")); break;
      default: {
        const std::string problem = certificate_problem(transport_->tls());
        const std::string reason = last_tls_error("the server closed the connection");
        return failure(fmt::format("no TLS connection ({})", problem.empty() ? reason : problem));
      }
    }
  }
}

std::string Client::Link::head(const ClientRequest& request) const {
  const bool brackets = options_.host.find(':') != std::string::npos;
  const bool usual_port = options_.port == (options_.tls ? 443 : 80);
  std::string out =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}{}{}{}\r\nUser-Agent: baton\r\nAccept: */*\r\n", request.method, request.target,
                  brackets ? "[" : "", options_.host, brackets ? "]" : "", usual_port ? "" : fmt::format(":{}", options_.port));
  for (const auto& [name, value] : request.headers) out += fmt::format("{}: {}\r\n", name, value);
  if (!request.body.empty()) out += fmt::format("Content-Type: {}\r\n", request.content_type);
  if (!request.body.empty() || (request.method != "GET" && request.method != "HEAD"))
    out += fmt::format("Content-Length: {}\r\n", request.body.size());
  return out += "\r\n";
}

Status Client::Link::run(const ClientRequest& request, ResponseReader& reader, const std::function<void(std::string_view)>& on_body,
                         const bool& enough) {
  heard_ = sent_all_ = false;
  const std::string head_bytes = head(request);
  size_t sent = 0;
  bool sending = true;
  std::string scratch(64 << 10, '\0');
  Clock::time_point silent_since = Clock::now();
  while (!enough) {
    short events = POLLIN;
    // Sends and listens at once: a server may refuse a long body before it has all of it.
    sent_all_ = sent == head_bytes.size() + request.body.size();
    if (sent_all_) sending = false;
    if (sending) {
      const bool in_body = sent >= head_bytes.size();
      const std::string_view first =
          in_body ? std::string_view(request.body).substr(sent - head_bytes.size()) : std::string_view(head_bytes).substr(sent);
      const IoResult result = transport_->write(first, in_body ? std::string_view() : std::string_view(request.body));
      sent += result.bytes;
      if (result.state == IoState::kDone) {
        silent_since = Clock::now();
        continue;
      }
      if (result.state == IoState::kWantWrite) events |= POLLOUT;
      if (result.state == IoState::kFailed || result.state == IoState::kEnd) sending = false;  // there may be an answer that says why
    }
    const IoResult result = transport_->read(scratch.data(), scratch.size());
    switch (result.state) {
      case IoState::kDone:
        heard_ = true;
        silent_since = Clock::now();
        reader.feed({scratch.data(), result.bytes}, on_body);
        if (reader.state() == ResponseReader::State::kComplete) return Status();
        if (reader.state() == ResponseReader::State::kFailed) return failure(reader.problem());
        continue;
      case IoState::kWantWrite: events |= POLLOUT; break;
      case IoState::kWantRead: break;
      case IoState::kFailed:
        // The end without TLS saying so, or a reset, completes nothing.
        return failure(heard_ ? "the connection was lost in the middle of the answer" : "the connection was lost before the answer");
      case IoState::kEnd:
        reader.end_of_input();
        if (reader.state() == ResponseReader::State::kFailed) return failure(reader.problem());
        return Status();
    }
    BATON_TRY(wait(events, silent_since + options_.silence_timeout, request.keep_going, "the server does not answer"));
  }
  return Status();
}

Client::Client(ClientOptions options) : options_(std::move(options)) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;

std::string_view ClientResponse::header(std::string_view name) const {
  const std::string* value = find_header(headers, name);
  return value != nullptr ? std::string_view(*value) : std::string_view();
}

Result<ClientResponse> Client::call(const ClientRequest& request) { return exchange(request, nullptr); }
Result<ClientResponse> Client::stream(const ClientRequest& request, const std::function<bool(std::string_view)>& on_bytes) {
  return exchange(request, &on_bytes);
}

Result<ClientResponse> Client::exchange(const ClientRequest& request, const std::function<bool(std::string_view)>* on_bytes) {
  for (const std::string* line : {&request.method, &request.target})
    if (line->empty() ||
        std::any_of(line->begin(), line->end(), [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7F'; }))
      return Error{.message = fmt::format("'{}' cannot stand in a request line; encode spaces as %20.", *line)};
  for (const auto& [name, value] : request.headers)
    if (name.empty() || (name + value).find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos)
      return Error{.message = fmt::format("The header field '{}' holds a line end or has no name.", name)};
  if (options_.tls && tls_ == nullptr) {
    BATON_ASSIGN(tls_, TlsContext::for_client(options_.tls_options));
  }
  for (bool first = true;; first = false) {
    std::unique_ptr<Link> link = std::move(link_);
    const bool kept = link != nullptr && !link->stale();
    if (!kept) {
      link = std::make_unique<Link>(options_);
      BATON_TRY(link->open(tls_.get(), request.keep_going));
    }
    ResponseReader reader(request.method == "HEAD");
    ClientResponse response;
    bool enough = false;
    bool too_long = false;
    const Status done = link->run(
        request, reader,
        [&](std::string_view bytes) {
          if (enough) return;
          if (on_bytes != nullptr && reader.status() / 100 == 2) {
            enough = !(*on_bytes)(bytes);
            return;
          }
          if (response.body.size() + bytes.size() > options_.body_bytes) {
            enough = too_long = true;
            return;
          }
          response.body += bytes;
        },
        enough);
    if (too_long)
      return Error{.kind = Error::Kind::kExhausted, .message = fmt::format("The answer is longer than {} bytes.", options_.body_bytes)};
    // The server may have closed a kept connection just when it was used again; what may be repeated without harm is.
    if (!done.ok() && kept && first && !link->heard() && (request.method == "GET" || request.method == "HEAD")) continue;
    if (!done.ok()) return done.error();
    response.status = reader.status();
    response.headers = reader.headers();
    if (!enough && link->sent_all() && reader.reusable()) link_ = std::move(link);
    return response;
  }
}

}  // namespace baton::http
