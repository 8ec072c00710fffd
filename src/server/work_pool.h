// Threads for work that takes a moment (reading, rendering, tokenising a request), with a bounded queue in front of them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace baton::server {

class WorkPool {
 public:
  WorkPool(int threads, size_t most_waiting) : most_waiting_(most_waiting) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~WorkPool() { stop(); }

  // What runs ends, what waits is dropped.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      work_.clear();
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  // False if as much waits as may; then `work` has been left alone.
  bool push(std::function<void()>& work) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || work_.size() >= most_waiting_) return false;
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
    return true;
  }
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return work_.size();
  }

 private:
  void serve() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

  const size_t most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton::server
