// bench_http: what the http room costs. Clients run in a process of their own, so that the figures are the server's alone.
//
//     build/release/bin/bench_http streams [STREAMS [SECONDS [LOOPS [WRITERS]]]]   CPU time per chunk, and how late chunks come
//     build/release/bin/bench_http floor [STREAMS [SECONDS]]                       the same bytes by one thread that only calls send()
//     build/release/bin/bench_http idle [CONNECTIONS]                              memory and CPU time of connections that wait
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "http/listener.h"
#include "http/raw_peer.h"

namespace {

using namespace baton;
using namespace baton::http;
using Clock = std::chrono::steady_clock;

double seconds_of(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }
int64_t now_us() { return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count(); }

int64_t resident_bytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void allow_files(rlim_t count) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, std::max(limit.rlim_cur, count));
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A child that runs `clients` with the port, once it is known.
class ClientProcess {
 public:
  explicit ClientProcess(int (*clients)(uint16_t, int), int argument) {
    if (::pipe(pipe_) != 0) std::abort();
    child_ = ::fork();
    if (child_ != 0) return;
    uint16_t port = 0;
    if (::read(pipe_[0], &port, sizeof port) != sizeof port) _exit(1);
    _exit(clients(port, argument));
  }
  void start(uint16_t port) const {
    if (::write(pipe_[1], &port, sizeof port) != sizeof port) std::abort();
  }
  bool finish() const {
    int status = 0;
    ::waitpid(child_, &status, 0);
    return status == 0;
  }

 private:
  int pipe_[2] = {};
  pid_t child_ = 0;
};

int read_streams(uint16_t port, int count) {
  allow_files(static_cast<rlim_t>(count) + 100);
  const int poll = ::epoll_create1(0);
  std::vector<RawPeer> peers;
  for (int i = 0; i < count; ++i) {
    peers.emplace_back(port);
    if (!peers.back().connected() || !peers.back().send("POST /s HTTP/1.1\r\nHost: h\r\n\r\n")) return 1;
    epoll_event event{.events = EPOLLIN, .data = {.fd = peers.back().fd()}};
    ::epoll_ctl(poll, EPOLL_CTL_ADD, peers.back().fd(), &event);
  }
  std::vector<int64_t> late;
  char buffer[65536];
  for (int open = count; open > 0;) {
    epoll_event events[256];
    const int n = ::epoll_wait(poll, events, 256, 10'000);
    if (n <= 0) return 1;
    for (int e = 0; e < n; ++e) {
      const ssize_t got = ::recv(events[e].data.fd, buffer, sizeof buffer, 0);
      if (got <= 0) return 1;
      const std::string_view bytes(buffer, static_cast<size_t>(got));
      if (const size_t at = bytes.find("\"at\":"); at != std::string_view::npos)
        late.push_back(now_us() - std::atoll(bytes.data() + at + 5));
      if (bytes.ends_with("0\r\n\r\n")) {
        ::epoll_ctl(poll, EPOLL_CTL_DEL, events[e].data.fd, nullptr);
        --open;
      }
    }
  }
  std::sort(late.begin(), late.end());
  if (late.empty()) return 1;
  const auto percentile = [&](double p) { return late[static_cast<size_t>(p * static_cast<double>(late.size() - 1))]; };
  fmt::print("read by clients after: p50 {} us, p99 {} us, longest {} us\n", percentile(0.5), percentile(0.99), late.back());
  std::fflush(stdout);
  return 0;
}

int bench_streams(int count, double seconds, int loops, int writers) {
  const ClientProcess clients(read_streams, count);
  std::mutex mutex;
  std::vector<std::shared_ptr<EventStream>> streams;
  auto listener = Listener::start({.threads = loops}, [&](const std::shared_ptr<Exchange>& exchange) {
    const std::lock_guard lock(mutex);
    streams.push_back(exchange->stream({}));
  });
  if (!listener.ok()) return fmt::print(stderr, "{}\n", listener.error().message), 1;
  clients.start((*listener)->port());
  for (bool all = false; !all;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::lock_guard lock(mutex);
    all = streams.size() == static_cast<size_t>(count);
  }
  // As a decoding engine does: every 25 ms a token for each.
  constexpr std::chrono::milliseconds kCycle(25);
  const int cycles = static_cast<int>(seconds / 0.025);
  const std::string padding(180, 'x');
  const Counters before = (*listener)->counters();
  rusage used_before{}, used{};
  getrusage(RUSAGE_SELF, &used_before);
  std::vector<std::thread> threads;
  for (int w = 0; w < writers; ++w)
    threads.emplace_back([&, w] {
      auto next = Clock::now();
      for (int c = 0; c < cycles; ++c) {
        const std::string event = fmt::format("data: {{\"at\":{},\"text\":\"{}\"}}\n\n", now_us(), padding);
        for (size_t s = static_cast<size_t>(w); s < streams.size(); s += static_cast<size_t>(writers)) streams[s]->write(event);
        std::this_thread::sleep_until(next += kCycle);
      }
    });
  for (auto& t : threads) t.join();
  getrusage(RUSAGE_SELF, &used);
  const Counters after = (*listener)->counters();
  for (const auto& stream : streams) stream->end();
  const bool good = clients.finish();
  const double chunks = static_cast<double>(cycles) * count;
  const double user = (seconds_of(used.ru_utime) - seconds_of(used_before.ru_utime)) * 1e6 / chunks;
  const double system = (seconds_of(used.ru_stime) - seconds_of(used_before.ru_stime)) * 1e6 / chunks;
  fmt::print(
      "{} streams, {} loops, {} writers, {} chunks: {:.2f} us CPU per chunk ({:.2f} user, {:.2f} system), {:.3f} sends, {:.4f} wake-ups\n",
      count, loops, writers, static_cast<int64_t>(chunks), user + system, user, system,
      static_cast<double>(after.sends - before.sends) / chunks, static_cast<double>(after.wake_ups - before.wake_ups) / chunks);
  return good ? 0 : 1;
}

// What the system takes: the same chunks to the same clients, without anything in front of send().
int bench_floor(int count, double seconds) {
  const ClientProcess clients(read_streams, count);
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listening, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listening, 4096) != 0) return 1;
  ::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size);
  clients.start(ntohs(address.sin_port));
  std::vector<int> sockets;
  for (int i = 0; i < count; ++i) {
    sockets.push_back(::accept(listening, nullptr, nullptr));
    const int on = 1;
    ::setsockopt(sockets.back(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  const int cycles = static_cast<int>(seconds / 0.025);
  const std::string padding(180, 'x');
  rusage used_before{}, used{};
  getrusage(RUSAGE_SELF, &used_before);
  auto next = Clock::now();
  for (int c = 0; c < cycles; ++c) {
    std::string chunk = fmt::format("data: {{\"at\":{},\"text\":\"{}\"}}\n\n", now_us(), padding);
    chunk = fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk);
    for (const int fd : sockets) ::send(fd, chunk.data(), chunk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    std::this_thread::sleep_until(next += std::chrono::milliseconds(25));
  }
  getrusage(RUSAGE_SELF, &used);
  for (const int fd : sockets) ::send(fd, "0\r\n\r\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
  const double chunks = static_cast<double>(cycles) * count;
  fmt::print("{} streams: send() alone: {:.2f} us CPU per chunk\n", count,
             (seconds_of(used.ru_utime) + seconds_of(used.ru_stime) - seconds_of(used_before.ru_utime) - seconds_of(used_before.ru_stime)) *
                 1e6 / chunks);
  return clients.finish() ? 0 : 1;
}

int open_idle(uint16_t port, int count) {
  allow_files(static_cast<rlim_t>(count) + 100);
  std::vector<RawPeer> peers;
  for (int i = 0; i < count; ++i) {
    peers.emplace_back(port);
    if (!peers.back().connected() || !peers.back().send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")) return 1;
    if (peers.back().read_until("{}").empty()) return 1;
  }
  std::this_thread::sleep_for(std::chrono::seconds(7));
  // All still serve.
  for (auto& peer : peers)
    if (!peer.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n") || peer.read_until("{}").empty()) return 1;
  return 0;
}

int bench_idle(int count) {
  const ClientProcess clients(open_idle, count);
  auto listener = Listener::start({}, [](const std::shared_ptr<Exchange>& exchange) { exchange->respond({.body = "{}"}); });
  if (!listener.ok()) return fmt::print(stderr, "{}\n", listener.error().message), 1;
  const int64_t empty = resident_bytes();
  clients.start((*listener)->port());
  while ((*listener)->counters().requests < count) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  rusage used_before{}, used{};
  getrusage(RUSAGE_SELF, &used_before);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  getrusage(RUSAGE_SELF, &used);
  const double cpu =
      seconds_of(used.ru_utime) + seconds_of(used.ru_stime) - seconds_of(used_before.ru_utime) - seconds_of(used_before.ru_stime);
  fmt::print("{} idle connections: {} bytes each in this process, {:.2f} % of a core\n", (*listener)->counters().connections_open,
             (resident_bytes() - empty) / count, cpu / 5 * 100);
  return clients.finish() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  if (argc > 1 && std::strcmp(argv[1], "streams") == 0) return bench_streams(number(2, 1000), number(3, 10), number(4, 1), number(5, 1));
  if (argc > 1 && std::strcmp(argv[1], "floor") == 0) return bench_floor(number(2, 1000), number(3, 10));
  if (argc > 1 && std::strcmp(argv[1], "idle") == 0) return bench_idle(number(2, 10'000));
  fmt::print(stderr, "usage: bench_http streams [STREAMS [SECONDS [LOOPS [WRITERS]]]] | floor [STREAMS [SECONDS]] | idle [CONNECTIONS]\n");
  return 2;
}
