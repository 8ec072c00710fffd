// The threads that turn tokens into text, so that the engine's thread need not.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace baton::server {

class OutputPool {
 public:
  class Task {
   public:
    virtual ~Task() = default;
    virtual void run() = 0;
  };

  explicit OutputPool(int threads);
  ~OutputPool();  // runs what is there, then ends

  int lanes() const { return static_cast<int>(lanes_.size()); }
  // Any thread. Tasks of a lane run one after the other, on one thread. A task that was handed over runs once for each time.
  void push(int lane, std::shared_ptr<Task> task);

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<Task>> tasks;
    bool sleeping = false;
    bool stopping = false;
    std::thread thread;
  };
  static void serve(Lane& lane);
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace baton::server
