// The threads of the CPU backend: they spin for the next op while work is dense and sleep when it is not.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace baton::cpu {

// One caller at a time. run() returns after every thread has finished; everything written before it is visible to the workers and back.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // >= 1, the calling thread included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // fn(thread) on every thread, 0 ... size() - 1.
  template <class Fn>
  void run(const Fn& fn) {
    run_erased([](const void* f, int thread) { (*static_cast<const Fn*>(f))(thread); }, &fn);
  }

  // fn(begin, end, thread) over [0, count) in contiguous ranges handed out dynamically, `grain` items at a time.
  template <class Fn>
  void parallel_for(int64_t count, int64_t grain, const Fn& fn) {
    if (count <= 0) return;
    if (size_ == 1 || count <= grain) {
      fn(int64_t{0}, count, 0);
      return;
    }
    std::atomic<int64_t> next{0};
    run([&](int thread) {
      for (int64_t begin = next.fetch_add(grain, std::memory_order_relaxed); begin < count;
           begin = next.fetch_add(grain, std::memory_order_relaxed))
        fn(begin, begin + grain < count ? begin + grain : count, thread);
    });
  }

  // fn(item, thread) for every item of [0, count). Each thread walks through its own share in order and then helps the others: neighbouring
  // items mostly follow each other on one thread, and no thread waits long for a slow one.
  template <class Fn>
  void parallel_shares(int64_t count, const Fn& fn) {
    if (size_ == 1 || count <= 1) {
      for (int64_t i = 0; i < count; ++i) fn(i, 0);
      return;
    }
    for (int p = 0; p < size_; ++p) shares_[static_cast<size_t>(p)].next.store(count * p / size_, std::memory_order_relaxed);
    run([&](int thread) {
      for (int other = 0; other < size_; ++other) {
        const int p = (thread + other) % size_;
        const int64_t end = count * (p + 1) / size_;
        std::atomic<int64_t>& next = shares_[static_cast<size_t>(p)].next;
        for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < end; i = next.fetch_add(1, std::memory_order_relaxed))
          fn(i, thread);
      }
    });
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
  };
  using Job = void (*)(const void*, int);
  void run_erased(Job job, const void* fn);
  void work(int thread);
  void join();

  int size_;
  std::vector<std::thread> threads_;
  std::unique_ptr<Share[]> shares_;
  alignas(64) std::atomic<uint64_t> epoch_{0};
  alignas(64) std::atomic<int> pending_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  Job job_ = nullptr;
  const void* fn_ = nullptr;
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace baton::cpu
