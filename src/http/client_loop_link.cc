// What goes over one connection of a ClientLoop: its handshake, a call, and how that ends.
#include <fmt/format.h>
#include <sys/epoll.h>

#include <cerrno>

#include "http/client_loop_impl.h"

namespace baton::http {

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

}  // namespace baton::http
