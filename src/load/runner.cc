#include "load/runner.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <deque>
#include <list>
#include <queue>
#include <system_error>
#include <tuple>

#include "load/answer_reader.h"
#include "load/body_maker.h"
#include "load/connection.h"

namespace baton::load {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBodiesAhead = 64;
constexpr double kProgressEvery = 0.1;
constexpr double kSilenceEvery = 1;

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// A thousand streams need a thousand descriptors; the usual soft limit is 1024.
void allow_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Turnover {  // a turn that is due
  double at = 0;
  int64_t conversation = 0, turn = 0;
  bool operator>(const Turnover& o) const { return std::tie(at, conversation) > std::tie(o.at, o.conversation); }
};

class Runner {
 public:
  Runner(const Workload& workload, const std::vector<double>& arrivals, const RunOptions& options)
      : workload_(workload), arrivals_(arrivals), o_(options), maker_(workload, options.request) {}

  Result<Run> all();

 private:
  struct Flight {
    std::unique_ptr<Record> record;
    std::unique_ptr<AnswerReader> reader;
    double heard = 0;  // when the last byte came, or it was sent
  };
  struct Peer {
    Connection connection;
    Flight flight;
    bool watching_write = false;
    bool dead = false;  // dropped, and may still be named by events that have been fetched
    std::list<Peer>::iterator self;
  };

  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool sending() const { return !stopped_ && (o_.time_limit_s <= 0 || now() < o_.time_limit_s); }
  void begin_due();
  void look_ahead();
  void send(int64_t conversation, int64_t turn, double intended);
  void launch(Flight flight);
  void step(Peer& peer);
  void finish(Flight flight, double at, std::string failure, std::string message);
  void watch(Peer& peer, int operation);
  void drop(Peer& peer);
  void fail_silent(double at);
  void set_timer() const;

  const Workload& workload_;
  const std::vector<double>& arrivals_;
  const RunOptions& o_;
  BodyMaker maker_;
  std::shared_ptr<const http::TlsContext> tls_;
  Address address_;
  Descriptor poll_{::epoll_create1(EPOLL_CLOEXEC)};
  Descriptor timer_{::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
  Clock::time_point start_;

  std::list<Peer> peers_, dropped_;
  std::vector<Peer*> idle_;
  std::priority_queue<Turnover, std::vector<Turnover>, std::greater<>> later_;  // turns behind the first, after their delays
  size_t next_ = 0;                                                             // conversation that has not begun
  size_t expected_ = 0;                                                         // ... whose first request has not been made
  int64_t flying_ = 0;                                                          // requests
  // When each place that no conversation holds became free, or will open; not used without a limit.
  std::priority_queue<double, std::vector<double>, std::greater<>> places_;
  bool stopped_ = false;
  Run run_;
};

void Runner::look_ahead() {
  for (; expected_ < workload_.size() && expected_ < next_ + kBodiesAhead; ++expected_) maker_.expect(static_cast<int64_t>(expected_), 0);
}

void Runner::begin_due() {
  while (!later_.empty() && later_.top().at <= now()) {
    const Turnover t = later_.top();
    later_.pop();
    send(t.conversation, t.turn, t.at);
  }
  const bool limited = o_.concurrency > 0;
  while (next_ < workload_.size() && !(limited && (places_.empty() || places_.top() > now()))) {
    // In a closed loop a request is due when its place became free, also if that was noticed late.
    const double due = !arrivals_.empty() ? arrivals_[next_] : limited ? places_.top() : 0;
    if (due > now()) break;
    if (limited) places_.pop();
    const auto conversation = static_cast<int64_t>(next_++);
    look_ahead();
    send(conversation, 0, due);
  }
}

void Runner::send(int64_t conversation, int64_t turn, double intended) {
  const Turn& t = workload_[static_cast<size_t>(conversation)].turns[static_cast<size_t>(turn)];
  Flight f;
  f.record = std::make_unique<Record>();
  Record& r = *f.record;
  r.conversation = conversation;
  r.turn = turn;
  r.asked_input = t.prompt.tokens();
  r.asked_output = t.output_tokens;
  r.intended = intended;
  f.reader = std::make_unique<AnswerReader>(r);
  if (static_cast<size_t>(turn) + 1 < workload_[static_cast<size_t>(conversation)].turns.size()) maker_.expect(conversation, turn + 1);
  run_.most_at_once = std::max(run_.most_at_once, ++flying_);
  launch(std::move(f));
}

void Runner::launch(Flight flight) {
  const int64_t conversation = flight.record->conversation, turn = flight.record->turn;
  std::string bytes = maker_.take(conversation, turn);
  const double at = now();
  // That of the first attempt, if this is another.
  if (flight.record->sent == 0) flight.record->sent = at;
  flight.heard = at;
  Peer* peer = nullptr;
  if (!idle_.empty()) {
    peer = idle_.back();
    idle_.pop_back();
  } else {
    peer = &peers_.emplace_back();
    peer->self = std::prev(peers_.end());
    ++run_.connections;
    if (peer->connection.open(address_, o_.url.host, tls_.get()) == Connection::State::kFailed) {
      std::string problem = peer->connection.problem();
      peers_.erase(peer->self);
      return finish(std::move(flight), at, "connect", std::move(problem));
    }
    watch(*peer, EPOLL_CTL_ADD);
  }
  peer->flight = std::move(flight);
  peer->connection.start(std::move(bytes));
  step(*peer);
}

void Runner::watch(Peer& peer, int operation) {
  const bool write = peer.connection.wants_write();
  if (operation == EPOLL_CTL_MOD && write == peer.watching_write) return;
  peer.watching_write = write;
  epoll_event event{.events = static_cast<uint32_t>(EPOLLIN | (write ? EPOLLOUT : 0U)), .data = {.ptr = &peer}};
  ::epoll_ctl(poll_.get(), operation, peer.connection.fd(), &event);
}

void Runner::drop(Peer& peer) {
  std::erase(idle_, &peer);
  peer.dead = true;
  peer.flight = {};
  dropped_.splice(dropped_.end(), peers_, peer.self);
}

void Runner::step(Peer& peer) {
  if (peer.dead) return;
  // An idle connection has nothing to say: the server closes it.
  if (peer.flight.reader == nullptr) return drop(peer);
  Flight& flight = peer.flight;
  double last = 0;  // arrival of what this step has read
  const Connection::State state = peer.connection.advance([&](int status, std::string_view bytes, double lag_s) {
    const double read = now();
    flight.heard = read;
    last = lag_s > 0 ? read - lag_s : read;
    if (lag_s >= 0) run_.read_lag_s.push_back(static_cast<float>(lag_s));
    flight.reader->feed(status, bytes, last);
  });
  if (flight.reader->failed() && state == Connection::State::kBusy) {
    Flight over = std::move(peer.flight);
    drop(peer);
    return finish(std::move(over), now(), {}, {});
  }
  switch (state) {
    case Connection::State::kBusy: watch(peer, EPOLL_CTL_MOD); return;
    case Connection::State::kIdle:
    case Connection::State::kOver: {
      flight.reader->end(peer.connection.status());
      Flight over = std::move(peer.flight);
      peer.flight = {};
      if (state == Connection::State::kIdle) {
        watch(peer, EPOLL_CTL_MOD);
        idle_.push_back(&peer);
      } else {
        drop(peer);
      }
      return finish(std::move(over), last > 0 ? last : now(), {}, {});
    }
    case Connection::State::kFailed: {
      Flight over = std::move(peer.flight);
      const bool again = peer.connection.used_before() && !peer.connection.heard();
      const char* kind = peer.connection.connected() ? "connection" : "connect";
      std::string problem = peer.connection.problem();
      drop(peer);
      // A server may close a kept connection just when it is used again; that says nothing about the server's answers.
      if (again) return launch(std::move(over));
      return finish(std::move(over), now(), kind, std::move(problem));
    }
  }
}

void Runner::finish(Flight flight, double at, std::string failure, std::string message) {
  Record& r = *flight.record;
  r.end = at;
  if (r.failure.empty() && !failure.empty()) {
    r.failure = std::move(failure);
    r.message = std::move(message);
  }
  --flying_;
  const std::vector<Turn>& turns = workload_[static_cast<size_t>(r.conversation)].turns;
  const auto next = static_cast<size_t>(r.turn) + 1;
  if (r.good() && next < turns.size() && sending()) {
    later_.push({at + turns[next].delay_s, r.conversation, r.turn + 1});
  } else {
    run_.unsent += static_cast<int64_t>(turns.size() - next);
    if (next < turns.size()) maker_.forget(r.conversation, r.turn + 1);
    if (o_.concurrency > 0) places_.push(at);
  }
  run_.records.push_back(std::move(r));
}

void Runner::fail_silent(double at) {
  for (auto p = peers_.begin(); p != peers_.end();) {
    Peer& peer = *p++;
    if (peer.flight.reader == nullptr || at - peer.flight.heard < o_.silence_s) continue;
    Flight over = std::move(peer.flight);
    drop(peer);
    finish(std::move(over), at, "timeout", fmt::format("not a byte came for {:.0f} s", o_.silence_s));
  }
}

void Runner::set_timer() const {
  double at = now() + kProgressEvery;
  if (!later_.empty()) at = std::min(at, later_.top().at);
  const bool limited = o_.concurrency > 0;
  if (sending() && next_ < workload_.size() && !(limited && places_.empty()))
    at = std::min(at, std::max(limited ? places_.top() : 0, arrivals_.empty() ? 0 : arrivals_[next_]));
  const auto ns = start_.time_since_epoch().count() + static_cast<int64_t>(std::max(at, 0.0) * 1e9) + 1;
  static_assert(Clock::period::den == 1'000'000'000);
  const itimerspec when{.it_interval = {}, .it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000}};
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

Result<Run> Runner::all() {
  allow_descriptors();
  if (poll_.get() < 0 || timer_.get() < 0)
    return Error{Error::Kind::kExhausted, fmt::format("the system refused a descriptor: {}", std::generic_category().message(errno))};
  BATON_ASSIGN(address_, resolve(o_.url.host, o_.url.port));
  if (o_.url.tls) {
    BATON_ASSIGN(tls_, http::TlsContext::for_client(o_.tls));
  }
  epoll_event on_timer{.events = EPOLLIN, .data = {.ptr = nullptr}};
  ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, timer_.get(), &on_timer);
  look_ahead();
  for (int64_t p = 0; p < o_.concurrency; ++p)
    places_.push(o_.concurrency_ramp_s * static_cast<double>(p) / static_cast<double>(o_.concurrency));
  const double used = processor_seconds();
  start_ = Clock::now();
  double progress = 0, silence = 0;
  std::array<epoll_event, 256> events{};
  for (;;) {
    if (sending()) begin_due();
    const bool more = sending() && (next_ < workload_.size() || !later_.empty());
    if (flying_ == 0 && !more) break;
    set_timer();
    const int n = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < n; ++i) {
      if (auto* peer = static_cast<Peer*>(events[static_cast<size_t>(i)].data.ptr); peer != nullptr) {
        step(*peer);
      } else {
        uint64_t expirations = 0;
        [[maybe_unused]] const ssize_t read = ::read(timer_.get(), &expirations, sizeof expirations);
      }
    }
    dropped_.clear();
    const double at = now();
    if (at - silence >= kSilenceEvery) {
      silence = at;
      fail_silent(at);
    }
    if (at - progress >= kProgressEvery && o_.on_progress) {
      progress = at;
      if (!o_.on_progress(static_cast<int64_t>(run_.records.size()))) {
        stopped_ = true;
        break;
      }
    }
  }
  run_.processor_s = processor_seconds() - used;
  // What was never begun, was waiting for its delay, or was given up.
  for (size_t c = next_; c < workload_.size(); ++c) run_.unsent += static_cast<int64_t>(workload_[c].turns.size());
  for (; !later_.empty(); later_.pop())
    run_.unsent += static_cast<int64_t>(workload_[static_cast<size_t>(later_.top().conversation)].turns.size()) - later_.top().turn;
  for (const Peer& p : peers_)
    if (p.flight.record != nullptr)
      run_.unsent +=
          static_cast<int64_t>(workload_[static_cast<size_t>(p.flight.record->conversation)].turns.size()) - p.flight.record->turn;
  run_.stopped = stopped_ || next_ < workload_.size();
  std::sort(run_.records.begin(), run_.records.end(),
            [](const Record& a, const Record& b) { return std::tie(a.conversation, a.turn) < std::tie(b.conversation, b.turn); });
  return std::move(run_);
}

}  // namespace

Result<Run> run(const Workload& workload, const std::vector<double>& arrivals, const RunOptions& options) {
  return Runner(workload, arrivals, options).all();
}

}  // namespace baton::load
