#include "transfer/same_host.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "transfer/introduction.h"
#include "transfer/route.h"

namespace baton::transfer {
namespace {

constexpr const char* kName = "same-host";
constexpr size_t kNameBytes = 32;
constexpr size_t kMostConnections = 256;

std::string system_text(int error) { return std::generic_category().message(error); }

// How the process is reached: its number, and the name of its socket.
std::vector<std::byte> address_bytes(pid_t pid, const std::string& socket_name) {
  std::vector<std::byte> out(sizeof pid + socket_name.size());
  std::memcpy(out.data(), &pid, sizeof pid);
  std::memcpy(out.data() + sizeof pid, socket_name.data(), socket_name.size());
  return out;
}

std::pair<sockaddr_un, socklen_t> address_of(std::string_view name) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path + 1, name.data(), name.size());
  return {a, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

}  // namespace

// A process that was met. Whoever still writes to it keeps it.
struct SameHost::Peer {
  Peer() = default;
  ~Peer() {
    if (socket >= 0) ::close(socket);
    if (process >= 0) ::close(process);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // The number of a process may be another's when it has ended.
  bool is_over() const {
    pollfd p{.fd = process, .events = POLLIN, .revents = 0};
    return ::poll(&p, 1, 0) != 0;
  }

  Agent agent;
  Memory memory;  // addresses of that process
  Route route;
  pid_t pid = 0;
  int socket = -1;
  int process = -1;  // pidfd
};

Status SameHost::enter(Agent self, Memory memory) {
  BATON_CHECK(self_ == Agent{} && self.epoch > 0);
  const auto failed = [](const char* what) {
    return Error{Error::Kind::kExhausted,
                 fmt::format("the system refused {} for the transfer between processes: {}", what, system_text(errno))};
  };
  std::random_device random;
  socket_name_ = fmt::format("baton-{:08x}{:08x}{:08x}00", random(), random(), random());
  socket_name_.resize(kNameBytes, '-');
  listening_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const auto [address, length] = address_of(socket_name_);
  constexpr int kBacklog = 64;
  if (listening_ < 0 || ::bind(listening_, reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(listening_, kBacklog) != 0)
    return failed("a socket");
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return failed("a descriptor");
  // Where the system lets only parents write into their children, any process of the user may write into this one.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  self_ = self;
  memory_ = std::move(memory);
  {
    const std::lock_guard lock(mutex_);
    entered_ = true;
  }
  thread_ = std::thread([this] { hear(); });
  return {};
}

void SameHost::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(entered_, false)) return close_all();
    peers_.clear();
    incoming_.clear();
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  thread_.join();
  posted_.clear();
  close_all();
}

void SameHost::close_all() {
  if (listening_ >= 0) ::close(std::exchange(listening_, -1));
  if (wake_ >= 0) ::close(std::exchange(wake_, -1));
}

std::vector<std::byte> SameHost::introduction() const {
  return encode(Introduction{.transport = kName, .agent = self_, .memory = memory_, .address = address_bytes(::getpid(), socket_name_)});
}

Result<Agent> SameHost::meet(std::span<const std::byte> bytes) {
  const auto no = [this](Error::Kind kind, std::string message) {
    const std::lock_guard lock(mutex_);
    ++meetings_failed_;
    return Error{kind, std::move(message)};
  };
  {
    const std::lock_guard lock(mutex_);
    if (!entered_) return Error{Error::Kind::kNotFound, "this instance is not there any more"};
  }
  Result<Introduction> read = decode_introduction(bytes);
  if (!read.ok()) return no(read.error().kind, read.error().message);
  const Agent agent = read->agent;
  if (const Status fits = check_introduction(*read, kName, self_, memory_); !fits.ok()) return no(fits.error().kind, fits.error().message);
  if (read->address.size() != sizeof(pid_t) + kNameBytes) return no(Error::Kind::kInvalid, "the introduction does not say how to reach it");
  auto peer = std::make_shared<Peer>();
  peer->agent = agent;
  peer->route = route(memory_, read->memory);
  peer->memory = std::move(read->memory);
  std::string name(kNameBytes, '-');
  std::memcpy(&peer->pid, read->address.data(), sizeof(pid_t));
  std::memcpy(name.data(), read->address.data() + sizeof(pid_t), kNameBytes);
  if (peer->pid <= 0) return no(Error::Kind::kInvalid, "the introduction names no process");
  peer->process = static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0));
  peer->socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const auto [address, length] = address_of(name);
  if (peer->process < 0 || peer->socket < 0 || ::connect(peer->socket, reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return no(Error::Kind::kIo, fmt::format("instance {} cannot be reached: {}", agent.instance, system_text(errno)));
  constexpr int kBufferBytes = 1 << 20;  // some thousand notices
  ::setsockopt(peer->socket, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  // Whether this process may write there at all; a byte is read, since nobody has ordered any to be written.
  if (const Region& slots = peer->memory.slots; slots.objects > 0 && slots.object_bytes > 0) {
    char byte = 0;
    const iovec local{&byte, 1}, remote{slots.data, 1};
    if (::process_vm_readv(peer->pid, &local, 1, &remote, 1, 0) != 1)
      return no(Error::Kind::kIo,
                fmt::format("the system does not let this process write into instance {} (process {}): {}; run both as the "
                            "same user and in one container, or use --transfer-backend nixl",
                            agent.instance, peer->pid, system_text(errno)));
  }
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Peer>& known = peers_[agent.instance];
  if (known != nullptr && known->agent.epoch > agent.epoch) {
    ++meetings_failed_;
    return Error{Error::Kind::kInvalid, fmt::format("a later process of instance {} was met already", agent.instance)};
  }
  known = std::move(peer);
  ++meetings_;
  return agent;
}

void SameHost::part_with(Agent agent) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(agent.instance);
  if (found != peers_.end() && found->second->agent == agent) peers_.erase(found);
}

Status SameHost::post(Part part) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(part.to.instance);
  if (!entered_ || found == peers_.end() || found->second->agent != part.to)
    return Error{Error::Kind::kNotFound,
                 fmt::format("instance {} (epoch {}) has not been met; it may have been started again", part.to.instance, part.to.epoch)};
  const Memory& theirs = found->second->memory;
  BATON_TRY(check_receiver(part, theirs.pages.objects, theirs.slots.objects));
  BATON_CHECK(part.from_pages.size() == part.to_pages.size() && std::ssize(part.notice) <= kMostNoticeBytes);
  posted_.push_back({std::move(part), std::chrono::steady_clock::now()});
  return {};
}

void SameHost::progress() {
  completions_.clear();
  arrivals_.clear();
  for (; !posted_.empty(); posted_.pop_front()) {
    const Posted& p = posted_.front();
    std::shared_ptr<const Peer> peer;
    {
      const std::lock_guard lock(mutex_);
      const auto found = peers_.find(p.part.to.instance);
      if (found != peers_.end() && found->second->agent == p.part.to) peer = found->second;
    }
    uint64_t checksum = 0;
    const std::optional<Failure> failure = peer == nullptr ? std::optional(Failure::kGone) : carry(p.part, *peer, checksum);
    ++metrics_.parts;
    completions_.push_back({.tag = p.part.tag, .ok = !failure, .checksum = checksum});
    if (failure) {
      ++metrics_.failed;
      ++metrics_.failures[static_cast<size_t>(*failure)];
      continue;
    }
    const auto took = std::chrono::steady_clock::now() - p.at;
    const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
    metrics_.took_ns += ns;
    metrics_.slowest_ns = std::max(metrics_.slowest_ns, ns);
  }
  const std::lock_guard lock(mutex_);
  arrivals_.swap(incoming_);
  metrics_.arrived += std::ssize(arrivals_);
  metrics_.peers = std::ssize(peers_);
  metrics_.meetings = meetings_;
  metrics_.meetings_failed = meetings_failed_;
  metrics_.garbled = garbled_;
}

// The bytes, then the notice.
std::optional<Failure> SameHost::carry(const Part& part, const Peer& peer, uint64_t& checksum) {
  std::vector<iovec> local, remote;
  const std::vector<Extent> sent = sent_extents(memory_, peer.route, part);
  for (const Extent& e : sent) local.push_back({const_cast<std::byte*>(e.data), static_cast<size_t>(e.bytes)});
  const auto add = [&](std::byte* target, const Slice& s) { remote.push_back({target + s.to, static_cast<size_t>(s.bytes)}); };
  int64_t page_bytes = 0, slot_bytes = 0;
  for (const int32_t page : part.to_pages)
    for (const Slice& s : peer.route.page) {
      add(object(peer.memory.pages, page), s);
      page_bytes += s.bytes;
    }
  if (part.from_slot >= 0)
    for (const auto& [s, of] : peer.route.slot) {
      if ((of & part.slot_parts) == 0) continue;
      add(object(peer.memory.slots, part.to_slot), s);
      slot_bytes += s.bytes;
    }
  BATON_CHECK(local.size() == remote.size());
  for (size_t done = 0; done < local.size();) {
    if (peer.is_over()) return Failure::kGone;
    const size_t n = std::min<size_t>(local.size() - done, IOV_MAX);
    ssize_t bytes = 0;
    for (size_t i = done; i < done + n; ++i) bytes += static_cast<ssize_t>(local[i].iov_len);
    const ssize_t written = ::process_vm_writev(peer.pid, &local[done], n, &remote[done], n, 0);
    if (written != bytes) return written < 0 && errno == ESRCH ? Failure::kGone : Failure::kRefused;
    done += n;
  }
  checksum = checksum_of(sent);
  std::array<std::byte, sizeof(Agent::instance) + sizeof(Agent::epoch) + kMostNoticeBytes> notice{};
  std::memcpy(notice.data(), &self_.instance, sizeof self_.instance);
  std::memcpy(notice.data() + sizeof self_.instance, &self_.epoch, sizeof self_.epoch);
  const size_t head = sizeof self_.instance + sizeof self_.epoch;
  std::copy(part.notice.begin(), part.notice.end(), notice.begin() + static_cast<std::ptrdiff_t>(head));
  // A receiver that has a full buffer of notices has stood still for long.
  if (::send(peer.socket, notice.data(), head + part.notice.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return errno == EAGAIN ? Failure::kTooLong : Failure::kGone;
  metrics_.page_bytes += page_bytes;
  metrics_.slot_bytes += slot_bytes;
  return std::nullopt;
}

// The thread: connections of others, and what they say.
void SameHost::hear() {
  std::vector<pollfd> polled{{.fd = wake_, .events = POLLIN, .revents = 0}, {.fd = listening_, .events = POLLIN, .revents = 0}};
  while (true) {
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) break;
    bool heard = false;
    for (size_t i = 2; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      std::array<std::byte, 512> bytes;
      const ssize_t n = ::recv(polled[i].fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n <= 0) {
        ::close(std::exchange(polled[i].fd, -1));
        continue;
      }
      Arrival arrival;
      constexpr size_t kHead = sizeof arrival.from.instance + sizeof arrival.from.epoch;
      const std::lock_guard lock(mutex_);
      if (static_cast<size_t>(n) < kHead || static_cast<size_t>(n) > kHead + kMostNoticeBytes) {
        ++garbled_;
        continue;
      }
      std::memcpy(&arrival.from.instance, bytes.data(), sizeof arrival.from.instance);
      std::memcpy(&arrival.from.epoch, bytes.data() + sizeof arrival.from.instance, sizeof arrival.from.epoch);
      arrival.notice.assign(bytes.data() + kHead, bytes.data() + n);
      incoming_.push_back(std::move(arrival));
      heard = true;
    }
    if (polled[1].revents != 0) {
      const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      ucred who{};
      socklen_t length = sizeof who;
      const bool known = fd >= 0 && ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.uid == ::geteuid();
      if (known && polled.size() < kMostConnections)
        polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      else if (fd >= 0)
        ::close(fd);
    }
    std::erase_if(polled, [](const pollfd& p) { return p.fd < 0; });
    if (heard) notify_();
  }
  for (size_t i = 2; i < polled.size(); ++i) ::close(polled[i].fd);
}

uint64_t SameHost::checksum(std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const {
  return checksum_of(held_extents(memory_, pages, slot, slot_parts));
}

}  // namespace baton::transfer
