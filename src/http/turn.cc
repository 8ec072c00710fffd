#include "http/turn.h"

#include <utility>

namespace baton::http {

void Mailbox::push(std::shared_ptr<Turn> turn) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  turns_.push_back(std::move(turn));
  if (std::exchange(awake_, true)) return;
  ++wake_ups_;
  wake_();  // under the lock: after close() there may be no loop to wake
}

bool Mailbox::take(std::vector<std::shared_ptr<Turn>>& turns) {
  const std::lock_guard lock(mutex_);
  turns.clear();
  turns.swap(turns_);
  if (turns.empty()) awake_ = false;
  return !turns.empty();
}

void Mailbox::close() {
  std::vector<std::shared_ptr<Turn>> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(turns_);
}

int64_t Mailbox::wake_ups() const {
  const std::lock_guard lock(mutex_);
  return wake_ups_;
}

void Turn::announce(std::unique_lock<std::mutex>& lock) {
  if (std::exchange(announced_, true)) return;
  lock.unlock();
  mailbox_->push(shared_from_this());
}

void Turn::respond(Response answer) {
  std::function<void()> dropped;
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kOpen) return;
  phase_ = Phase::kAnswered;
  dropped.swap(on_gone_);
  held_ = std::move(answer.held);
  response = std::move(answer);
  announce(lock);
}

void Turn::start_stream(StreamHead answer) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kOpen) return;
  phase_ = Phase::kStreaming;
  head = std::move(answer);
  announce(lock);
}

bool Turn::write(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kStreaming || gone_) return false;
  if (bytes.empty()) return true;
  const size_t waiting = (pending_.empty() ? 0 : pending_.size() - kFrameSpace) + in_flight_;
  if (waiting + bytes.size() > stream_bytes_) {
    gone_ = too_slow_ = true;
    announced_ = false;  // the loop may wait for the socket instead of looking here
    announce(lock);
    return false;
  }
  if (pending_.empty()) pending_.resize(kFrameSpace);
  pending_ += bytes;
  announce(lock);
  return true;
}

void Turn::end() {
  std::function<void()> dropped;
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kStreaming) return;
  phase_ = Phase::kEnded;
  if (!gone_) dropped.swap(on_gone_);
  announce(lock);
}

void Turn::abandon() {
  std::function<void()> dropped;
  std::unique_lock lock(mutex_);
  if (phase_ == Phase::kStreaming) {
    phase_ = Phase::kBrokenOff;
    announced_ = false;
    announce(lock);
  } else if (phase_ == Phase::kOpen) {
    phase_ = Phase::kAnswered;
    response.status = 500;
    response.body = default_error_body(500, "The request was dropped without an answer.");
    announce(lock);
  }
  if (!lock.owns_lock()) lock.lock();
  if (!gone_) dropped.swap(on_gone_);
}

void Turn::on_gone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kOpen && phase_ != Phase::kStreaming) return;
    if (!gone_told_) {
      on_gone_.swap(callback);
      return;
    }
  }
  if (callback) callback();
}

bool Turn::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

size_t Turn::unsent() const {
  const std::lock_guard lock(mutex_);
  return (pending_.empty() ? 0 : pending_.size() - kFrameSpace) + in_flight_;
}

Turn::News Turn::take(std::string& bytes) {
  const std::lock_guard lock(mutex_);
  announced_ = false;
  News news;
  news.response = phase_ == Phase::kAnswered;
  news.head = !head_taken_ && (phase_ == Phase::kStreaming || phase_ == Phase::kEnded);
  news.ended = phase_ == Phase::kEnded;
  news.broken_off = phase_ == Phase::kBrokenOff;
  news.too_slow = too_slow_;
  if (news.head) head_taken_ = true;
  bytes.swap(pending_);
  in_flight_ = bytes.empty() ? 0 : bytes.size() - kFrameSpace;
  return news;
}

bool Turn::must_cut() const {
  const std::lock_guard lock(mutex_);
  return too_slow_ || phase_ == Phase::kBrokenOff;
}

void Turn::bytes_sent(size_t left) {
  const std::lock_guard lock(mutex_);
  in_flight_ = left;
}

void Turn::set_gone() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    gone_ = gone_told_ = true;
    pending_ = {};
    in_flight_ = 0;
    callback.swap(on_gone_);
  }
  if (callback) callback();
}

namespace {

// EventStream and Exchange over a turn. Their destructors speak for what was forgotten.
class TurnStream : public EventStream {
 public:
  explicit TurnStream(std::shared_ptr<Turn> turn) : turn_(std::move(turn)) {}
  ~TurnStream() override { turn_->abandon(); }
  bool write(std::string_view bytes) override { return turn_->write(bytes); }
  void end() override { turn_->end(); }
  size_t unsent() const override { return turn_->unsent(); }
  bool gone() const override { return turn_->gone(); }

 private:
  const std::shared_ptr<Turn> turn_;
};

class TurnExchange : public Exchange {
 public:
  explicit TurnExchange(std::shared_ptr<Turn> turn) : turn_(std::move(turn)) {}
  ~TurnExchange() override {
    if (!streaming_) turn_->abandon();
  }
  const Request& request() const override { return turn_->request; }
  void respond(Response response) override { turn_->respond(std::move(response)); }
  std::shared_ptr<EventStream> stream(StreamHead head) override {
    streaming_ = true;
    turn_->start_stream(std::move(head));
    return std::make_shared<TurnStream>(turn_);
  }
  void on_gone(std::function<void()> callback) override { turn_->on_gone(std::move(callback)); }
  bool gone() const override { return turn_->gone(); }

 private:
  const std::shared_ptr<Turn> turn_;
  bool streaming_ = false;
};

}  // namespace

std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Turn> turn) { return std::make_shared<TurnExchange>(std::move(turn)); }

}  // namespace baton::http
