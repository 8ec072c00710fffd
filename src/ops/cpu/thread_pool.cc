#include "ops/cpu/thread_pool.h"

#include <immintrin.h>

#include "base/check.h"

namespace baton::cpu {
namespace {
// About 50 us of spinning: longer than the gap between two ops of a step, shorter than anybody notices when the engine is idle.
constexpr int kSpins = 2000;
// With fewer cores than threads a spinning thread keeps the others from working.
void relax(int spin) {
  _mm_pause();
  if ((spin & 63) == 63) std::this_thread::yield();
}
}  // namespace

ThreadPool::ThreadPool(int threads) : size_(threads), shares_(new Share[static_cast<size_t>(threads > 0 ? threads : 1)]) {
  BATON_CHECK(threads >= 1);
  threads_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (...) {
    join();  // the system grants no more threads: those that run must end before the exception leaves
    throw;
  }
}

ThreadPool::~ThreadPool() { join(); }

void ThreadPool::join() {
  stop_.store(true);
  {
    const std::lock_guard lock(mutex_);
    epoch_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& t : threads_) t.join();
}

void ThreadPool::run_erased(Job job, const void* fn) {
  if (size_ == 1) {
    job(fn, 0);
    return;
  }
  job_ = job;
  fn_ = fn;
  pending_.store(size_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1);  // sequentially consistent with the sleepers' announcement below: one of the two sees the other
  if (sleepers_.load() > 0) {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  job(fn, 0);
  for (int spin = 0; pending_.load(std::memory_order_acquire) != 0; ++spin) relax(spin);
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  while (true) {
    for (int spin = 0; spin < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++spin) relax(spin);
    if (epoch_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return epoch_.load() != seen; });
      sleepers_.fetch_sub(1);
    }
    ++seen;
    if (stop_.load()) return;
    job_(fn_, thread);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace baton::cpu
