#include "server/output_pool.h"

#include <utility>

namespace baton::server {

OutputPool::OutputPool(int threads) {
  for (int i = 0; i < threads; ++i) {
    Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
    lane.thread = std::thread([&lane] { serve(lane); });
  }
}

OutputPool::~OutputPool() {
  for (const auto& lane : lanes_) {
    {
      const std::lock_guard lock(lane->mutex);
      lane->stopping = true;
    }
    lane->changed.notify_one();
  }
  for (const auto& lane : lanes_) lane->thread.join();
}

void OutputPool::push(int lane_index, std::shared_ptr<Task> task) {
  Lane& lane = *lanes_[static_cast<size_t>(lane_index)];
  // Under the lock: once the lane can take the task, whoever waits for that task may end the pool, and the lane with it.
  const std::lock_guard lock(lane.mutex);
  lane.tasks.push_back(std::move(task));
  if (std::exchange(lane.sleeping, false)) lane.changed.notify_one();
}

void OutputPool::serve(Lane& lane) {
  std::vector<std::shared_ptr<Task>> tasks;
  while (true) {
    {
      std::unique_lock lock(lane.mutex);
      while (lane.tasks.empty() && !lane.stopping) {
        lane.sleeping = true;
        lane.changed.wait(lock);
      }
      if (lane.tasks.empty()) return;
      tasks.swap(lane.tasks);
    }
    for (std::shared_ptr<Task>& task : tasks) {
      task->run();
      task.reset();
    }
    tasks.clear();
  }
}

}  // namespace baton::server
