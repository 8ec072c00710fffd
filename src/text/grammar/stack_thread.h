// A thread with a stack of known size: the grammar library recurses as deep as a grammar says.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>

#include "base/check.h"

namespace baton::text {

// What was tried out on a smaller stack fits into a larger one, whatever limits the processes were started with.
inline constexpr size_t kTrialStackBytes = size_t{8} << 20;
inline constexpr size_t kCompileStackBytes = size_t{16} << 20;

// Joins when destroyed.
class StackThread {
 public:
  StackThread(size_t stack_bytes, std::function<void()> work) : work_(std::make_unique<std::function<void()>>(std::move(work))) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, stack_bytes);
    const auto run = [](void* function) -> void* {
      (*static_cast<std::function<void()>*>(function))();
      return nullptr;
    };
    BATON_CHECK_MSG(::pthread_create(&thread_, &attributes, run, work_.get()) == 0, "a thread cannot be started");
    ::pthread_attr_destroy(&attributes);
  }
  StackThread(StackThread&& other) noexcept = default;
  StackThread& operator=(StackThread&&) = delete;
  ~StackThread() {
    if (work_ != nullptr) ::pthread_join(thread_, nullptr);
  }

 private:
  std::unique_ptr<std::function<void()>> work_;  // null once moved from
  pthread_t thread_{};
};

}  // namespace baton::text
