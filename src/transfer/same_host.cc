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

#include "transfer/checksum.h"

namespace baton::transfer {
namespace {

constexpr std::array<char, 8> kMagic = {'B', 't', 'S', 'a', 'm', 'e', 'H', '1'};
constexpr int64_t kMostRuns = 1 << 16;
constexpr int64_t kMostObjectBytes = int64_t{1} << 40;
constexpr size_t kNameBytes = 32;
constexpr size_t kMostConnections = 256;

std::string system_text(int error) { return std::generic_category().message(error); }

bool has(const Region& region, int32_t id) { return id >= 0 && id < region.objects; }

std::byte* object(const Region& region, int32_t id) {
  BATON_CHECK_MSG(has(region, id), "object {} of a region of {}", id, region.objects);
  return region.data + int64_t{id} * region.object_bytes;
}

// What another process has to know. In the byte order of the machine, which both run on.
struct Introduction {
  Agent agent;
  pid_t pid = 0;
  std::array<char, kNameBytes> socket_name = {};
  uint64_t fingerprint = 0;
  Memory memory;  // addresses of that process
};

class Writer {
 public:
  template <class T>
  void operator()(const T& value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), p, p + sizeof(T));
  }
  std::vector<std::byte> bytes;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  void operator()(T& value) {
    ok_ = ok_ && bytes_.size() >= sizeof(T);
    if (!ok_) return;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

void fields(auto& f, auto& run) requires std::is_same_v<std::remove_cvref_t<decltype(run)>, Run> {
  f(run.array), f(run.first), f(run.bytes), f(run.offset);
}
void fields(auto& f, auto& run) requires std::is_same_v<std::remove_cvref_t<decltype(run)>, SlotRun> { fields(f, run.run), f(run.part); }
void fields(auto& f, auto& region) requires std::is_same_v<std::remove_cvref_t<decltype(region)>, Region> {
  f(region.data), f(region.object_bytes), f(region.objects);
}

bool fits(const Run& r, const Region& region) {
  return r.first >= 0 && r.bytes > 0 && r.offset >= 0 && r.bytes <= region.object_bytes && r.offset <= region.object_bytes - r.bytes &&
         r.first <= kMostObjectBytes;
}
bool fits(const SlotRun& r, const Region& region) { return fits(r.run, region); }
bool is_sound(const Region& r) {
  if (r.object_bytes < 0 || r.object_bytes > kMostObjectBytes || r.objects < 0) return false;
  return r.object_bytes * r.objects <=
         static_cast<int64_t>(UINTPTR_MAX / 2 - std::min(UINTPTR_MAX / 2, reinterpret_cast<uintptr_t>(r.data)));
}

template <class T>
bool read_runs(Reader& f, std::vector<T>& runs, const Region& region) {
  uint32_t count = 0;
  f(count);
  if (!f.ok() || int64_t{count} > kMostRuns || count > f.left()) return false;
  runs.resize(count);
  for (T& run : runs) fields(f, run);
  return f.ok() && std::ranges::all_of(runs, [&region](const T& run) { return fits(run, region); });
}

Result<Introduction> read(std::span<const std::byte> bytes) {
  const auto wrong = [](const char* why) {
    return Error{Error::Kind::kInvalid, fmt::format("this is no introduction of a process on the same machine: {}", why)};
  };
  Reader f(bytes);
  std::array<char, kMagic.size()> magic{};
  Introduction i;
  f(magic);
  if (!f.ok() || magic != kMagic)
    return wrong("it does not begin like one; give all instances the same --transfer-backend, and run the same program");
  f(i.agent.instance), f(i.agent.epoch), f(i.pid), f(i.socket_name), f(i.fingerprint);
  fields(f, i.memory.pages), fields(f, i.memory.slots);
  if (!f.ok() || i.agent.epoch == 0 || i.pid <= 0 || !is_sound(i.memory.pages) || !is_sound(i.memory.slots))
    return wrong("a field of it cannot be");
  if (!read_runs(f, i.memory.page_runs, i.memory.pages) || !read_runs(f, i.memory.slot_runs, i.memory.slots) || !f.at_end())
    return wrong("its layout is not one");
  return i;
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

  Introduction of;
  int socket = -1;
  int process = -1;  // pidfd
  std::vector<Slice> page;
  std::vector<std::pair<Slice, uint32_t>> slot;  // with the part that it belongs to
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
  Writer f;
  f(kMagic), f(self_.instance), f(self_.epoch), f(::getpid());
  std::array<char, kNameBytes> name{};
  std::copy(socket_name_.begin(), socket_name_.end(), name.begin());
  f(name), f(memory_.fingerprint);
  fields(f, memory_.pages), fields(f, memory_.slots);
  f(static_cast<uint32_t>(memory_.page_runs.size()));
  for (const Run& run : memory_.page_runs) fields(f, run);
  f(static_cast<uint32_t>(memory_.slot_runs.size()));
  for (const SlotRun& run : memory_.slot_runs) fields(f, run);
  return std::move(f.bytes);
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
  Result<Introduction> read_one = read(bytes);
  if (!read_one.ok()) return no(read_one.error().kind, read_one.error().message);
  auto peer = std::make_shared<Peer>();
  peer->of = std::move(*read_one);
  const Introduction& i = peer->of;
  const Agent agent = i.agent;
  if (agent.instance == self_.instance)
    return no(Error::Kind::kInvalid, fmt::format("instance {} was introduced to itself", agent.instance));
  if (i.fingerprint != memory_.fingerprint)
    return no(Error::Kind::kInvalid,
              fmt::format("instances {} and {} have different models, or keep them in different types; start them with the same ones",
                          self_.instance, agent.instance));
  peer->page = slices(memory_.page_runs, i.memory.page_runs);
  for (const SlotRun& wanted : i.memory.slot_runs)
    for (const SlotRun& mine : memory_.slot_runs)
      for (const Slice& s : slices({&mine.run, 1}, {&wanted.run, 1})) peer->slot.emplace_back(s, wanted.part);
  if (!memory_.page_runs.empty() && !i.memory.page_runs.empty() && peer->page.empty())
    return no(Error::Kind::kInvalid,
              fmt::format("instances {} and {} have nothing in common in their pages", self_.instance, agent.instance));

  peer->process = static_cast<int>(::syscall(SYS_pidfd_open, i.pid, 0));
  peer->socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const auto [address, length] = address_of({i.socket_name.data(), i.socket_name.size()});
  if (peer->process < 0 || peer->socket < 0 || ::connect(peer->socket, reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return no(Error::Kind::kIo, fmt::format("instance {} cannot be reached: {}", agent.instance, system_text(errno)));
  constexpr int kBufferBytes = 1 << 20;  // some thousand notices
  ::setsockopt(peer->socket, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  // Whether this process may write there at all; a byte is read, since nobody has ordered any to be written.
  if (i.memory.slots.objects > 0 && i.memory.slots.object_bytes > 0) {
    char byte = 0;
    const iovec local{&byte, 1}, remote{i.memory.slots.data, 1};
    if (::process_vm_readv(i.pid, &local, 1, &remote, 1, 0) != 1)
      return no(Error::Kind::kIo,
                fmt::format("the system does not let this process write into instance {} (process {}): {}; run both as the "
                            "same user and in one container, or use --transfer-backend nixl",
                            agent.instance, i.pid, system_text(errno)));
  }
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Peer>& known = peers_[agent.instance];
  if (known != nullptr && known->of.agent.epoch > agent.epoch) {
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
  if (found != peers_.end() && found->second->of.agent == agent) peers_.erase(found);
}

Status SameHost::post(Part part) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(part.to.instance);
  if (!entered_ || found == peers_.end() || found->second->of.agent != part.to)
    return Error{Error::Kind::kNotFound,
                 fmt::format("instance {} (epoch {}) has not been met; it may have been started again", part.to.instance, part.to.epoch)};
  const Memory& theirs = found->second->of.memory;
  const bool pages = std::ranges::all_of(part.to_pages, [&theirs](int32_t page) { return has(theirs.pages, page); });
  if (!pages || (part.to_slot >= 0 && !has(theirs.slots, part.to_slot)))
    return Error{Error::Kind::kInvalid,
                 fmt::format("a write for instance {} goes to pages or a slot that it does not have; it has {} and {}", part.to.instance,
                             theirs.pages.objects, theirs.slots.objects)};
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
      if (found != peers_.end() && found->second->of.agent == p.part.to) peer = found->second;
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
  Checksum sum;
  std::vector<iovec> local, remote;
  int64_t page_bytes = 0, slot_bytes = 0;
  const auto add = [&](const std::byte* source, std::byte* target, const Slice& s) {
    sum.add(source + s.from, s.bytes);
    local.push_back({const_cast<std::byte*>(source) + s.from, static_cast<size_t>(s.bytes)});
    remote.push_back({target + s.to, static_cast<size_t>(s.bytes)});
  };
  for (size_t i = 0; i < part.from_pages.size(); ++i)
    for (const Slice& s : peer.page) {
      add(object(memory_.pages, part.from_pages[i]), object(peer.of.memory.pages, part.to_pages[i]), s);
      page_bytes += s.bytes;
    }
  if (part.from_slot >= 0)
    for (const auto& [s, of] : peer.slot) {
      if ((of & part.slot_parts) == 0) continue;
      add(object(memory_.slots, part.from_slot), object(peer.of.memory.slots, part.to_slot), s);
      slot_bytes += s.bytes;
    }
  for (size_t done = 0; done < local.size();) {
    if (peer.is_over()) return Failure::kGone;
    const size_t n = std::min<size_t>(local.size() - done, IOV_MAX);
    ssize_t bytes = 0;
    for (size_t i = done; i < done + n; ++i) bytes += static_cast<ssize_t>(local[i].iov_len);
    const ssize_t written = ::process_vm_writev(peer.of.pid, &local[done], n, &remote[done], n, 0);
    if (written != bytes) return written < 0 && errno == ESRCH ? Failure::kGone : Failure::kRefused;
    done += n;
  }
  checksum = sum.value();
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
  Checksum sum;
  for (const int32_t page : pages)
    for (const Run& run : memory_.page_runs) sum.add(object(memory_.pages, page) + run.offset, run.bytes);
  if (slot >= 0)
    for (const SlotRun& run : memory_.slot_runs)
      if ((run.part & slot_parts) != 0) sum.add(object(memory_.slots, slot) + run.run.offset, run.run.bytes);
  return sum.value();
}

}  // namespace baton::transfer
