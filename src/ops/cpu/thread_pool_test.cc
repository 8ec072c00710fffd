#include "ops/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace baton::cpu {
namespace {

TEST(ThreadPool, RunsEveryThreadOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    std::vector<int> calls(static_cast<size_t>(threads));
    for (int repeat = 0; repeat < 200; ++repeat) pool.run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
    EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(threads), 200));
  }
}

TEST(ThreadPool, CoversARangeExactlyOnce) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 5000}) {
        std::vector<int> visits(static_cast<size_t>(count));
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int thread) {
          ASSERT_GE(thread, 0);
          ASSERT_LT(thread, threads);
          ASSERT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(count), 1)) << count << " / " << grain << " on " << threads;
      }
    }
  }
}

TEST(ThreadPool, SharesEveryItemExactlyOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 3, 8, 100, 1001}) {
      std::vector<int> visits(static_cast<size_t>(count));
      pool.parallel_shares(count, [&](int64_t item, int thread) {
        ASSERT_LT(thread, threads);
        ++visits[static_cast<size_t>(item)];
        if (thread == 0 && item % 7 == 0) std::this_thread::yield();
      });
      EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(count), 1)) << count << " on " << threads;
    }
  }
}

// Workers that went to sleep must hear of the next call, and see what was written before it.
TEST(ThreadPool, WakesSleepersWithTheirData) {
  ThreadPool pool(3);
  int64_t value = 0;
  std::vector<int64_t> seen(3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(repeat % 4));
    value = repeat;
    pool.run([&](int thread) { seen[static_cast<size_t>(thread)] = value; });
    EXPECT_EQ(seen, std::vector<int64_t>(3, repeat));
  }
}

TEST(ThreadPool, EndsWhileWorkersSpinOrSleep) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    ThreadPool pool(3);
    if (repeat % 2 == 0) pool.run([](int) {});
  }
}

}  // namespace
}  // namespace baton::cpu
