// A thread with a stack of known size: the grammar library recurses as deep as a grammar says.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>

#include "base/result.h"

namespace baton::text {

// What was tried out on a smaller stack fits into a larger one, whatever limits the processes were started with.
inline constexpr size_t kTrialStackBytes = size_t{8} << 20;
inline constexpr size_t kCompileStackBytes = size_t{16} << 20;

// Joins when destroyed.
class StackThread {
 public:
  // kIo: the system gives no thread, or not this much address space for its stack.
  static Result<StackThread> start(size_t stack_bytes, std::function<void()> work) {
    StackThread thread(std::make_unique<std::function<void()>>(std::move(work)));
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, stack_bytes);
    const auto run = [](void* function) -> void* {
      (*static_cast<std::function<void()>*>(function))();
      return nullptr;
    };
    const int error = ::pthread_create(&thread.thread_, &attributes, run, thread.work_.get());
    ::pthread_attr_destroy(&attributes);
    if (error == 0) return thread;
    thread.work_.reset();
    return Error{Error::Kind::kIo, "a thread that compiles grammars cannot be started: a limit of the system is reached"};
  }
  StackThread(StackThread&& other) noexcept = default;
  StackThread& operator=(StackThread&&) = delete;
  ~StackThread() {
    if (work_ != nullptr) ::pthread_join(thread_, nullptr);
  }

 private:
  explicit StackThread(std::unique_ptr<std::function<void()>> work) : work_(std::move(work)) {}

  std::unique_ptr<std::function<void()>> work_;  // null where there is no thread
  pthread_t thread_{};
};

}  // namespace baton::text
