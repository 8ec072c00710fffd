#include "load/body_maker.h"

#include <algorithm>

namespace baton::load {

BodyMaker::BodyMaker(const Workload& workload, const RequestOptions& options)
    : workload_(workload), options_(options), thread_([this] { work(); }) {}

BodyMaker::~BodyMaker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::string BodyMaker::make(const Key& key) const {
  return request_bytes(workload_[static_cast<size_t>(key.first)].turns[static_cast<size_t>(key.second)], options_);
}

void BodyMaker::expect(int64_t conversation, int64_t turn) {
  {
    const std::lock_guard lock(mutex_);
    expected_.emplace_back(conversation, turn);
  }
  changed_.notify_all();
}

std::string BodyMaker::take(int64_t conversation, int64_t turn) {
  const Key key{conversation, turn};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return making_ != key; });
  if (auto made = made_.extract(key); !made.empty()) return std::move(made.mapped());
  std::erase(expected_, key);
  lock.unlock();
  return make(key);
}

void BodyMaker::forget(int64_t conversation, int64_t turn) {
  const Key key{conversation, turn};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return making_ != key; });
  std::erase(expected_, key);
  made_.erase(key);
}

void BodyMaker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !expected_.empty(); });
    if (stopping_) return;
    making_ = expected_.front();
    expected_.pop_front();
    lock.unlock();
    std::string bytes = make(making_);
    lock.lock();
    made_.emplace(making_, std::move(bytes));
    making_ = {-1, -1};
    changed_.notify_all();
  }
}

}  // namespace baton::load
