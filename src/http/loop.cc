#include "http/loop.h"

#include <algorithm>
#include <boost/asio/post.hpp>

#include "http/connection.h"

namespace baton::http {

namespace asio = boost::asio;

namespace {

// Often enough for the shortest of the timeouts, and no oftener than useful.
std::chrono::milliseconds sweep_interval(const Limits& limits) {
  const auto shortest = std::min({limits.header_timeout, limits.body_timeout, limits.idle_timeout, limits.write_timeout, limits.ping,
                                  limits.drain_patience, std::chrono::milliseconds(2000)});
  return std::clamp(shortest / 4, std::chrono::milliseconds(5), std::chrono::milliseconds(250));
}

}  // namespace

Loop::Loop(Shared& s)
    : shared(s), mailbox(std::make_shared<Mailbox>([this] { asio::post(io, [this] { read_mail(); }); })), scratch(64 << 10),
      work_(io.get_executor()), sweep_timer_(io), sweep_every_(sweep_interval(s.options.limits)) {}

Loop::~Loop() { stop(); }

void Loop::start() {
  thread_ = std::thread([this] { io.run(); });
}

void Loop::stop() {
  if (!thread_.joinable()) return;
  asio::post(io, [this] {
    stopped_ = true;
    sweep_timer_.cancel();
    while (!connections_.empty()) connections_.back()->close(true);
    mailbox->close();
    work_.reset();
  });
  thread_.join();
}

void Loop::adopt(asio::ip::tcp::socket socket, TlsChannel tls) {
  update_now();
  counters.connections_accepted.add();
  const bool secure = tls != nullptr;
  const auto connection = std::make_shared<Connection>(*this, std::move(socket), std::move(tls));
  if (stopped_) return;
  const int open = ++shared.connections;
  add(connection);
  if (open <= shared.options.limits.connections) return connection->start();
  counters.connections_refused.add();
  // So many more get an answer; beyond that there is no time for manners.
  if (secure || open > shared.options.limits.connections + 256) return connection->close(true);
  connection->start_refused(503, "The server has as many connections as it takes; try again later.");
}

void Loop::add(std::shared_ptr<Connection> connection) {
  counters.connections_open.add();
  connection->place = connections_.size();
  connections_.push_back(std::move(connection));
  if (!sweeping_) arm_sweep();
}

void Loop::remove(Connection& connection) {
  counters.connections_open.add(-1);
  --shared.connections;
  const size_t place = connection.place;
  if (place + 1 != connections_.size()) {
    connections_[place].swap(connections_.back());
    connections_[place]->place = place;
  }
  connections_.pop_back();
}

void Loop::read_mail() {
  update_now();
  // A few rounds: while answers pour in, one run of the loop serves many of them, and sockets are still looked at between runs.
  for (int round = 0; round < 4; ++round) {
    if (!mailbox->take(mail_)) return;
    for (const auto& turn : mail_) {
      if (turn->connection == nullptr) continue;
      const auto connection = turn->connection->shared_from_this();
      connection->on_mail();
    }
    mail_.clear();
  }
  asio::post(io, [this] { read_mail(); });
}

void Loop::begin_drain() {
  if (draining_) return;
  update_now();
  draining_ = true;
  for (size_t i = connections_.size(); i-- > 0;) {
    const auto connection = connections_[i];
    connection->on_drain();
  }
}

void Loop::arm_sweep() {
  sweeping_ = true;
  sweep_timer_.expires_after(sweep_every_);
  sweep_timer_.async_wait([this](const boost::system::error_code& error) {
    sweeping_ = false;
    if (!error && !stopped_) sweep();
  });
}

void Loop::sweep() {
  update_now();
  // Backwards, since one that closes is replaced by the last.
  for (size_t i = connections_.size(); i-- > 0;) {
    const auto connection = connections_[i];
    connection->on_tick();
  }
  if (!connections_.empty()) arm_sweep();
}

}  // namespace baton::http
