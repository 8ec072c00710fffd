// Makes requests ahead of their time on a thread of its own: to write 64K token ids takes longer than a latency may be wrong by.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "load/request_body.h"

namespace baton::load {

class BodyMaker {
 public:
  // Both outlive it.
  BodyMaker(const Workload& workload, const RequestOptions& options);
  ~BodyMaker();
  BodyMaker(const BodyMaker&) = delete;
  BodyMaker& operator=(const BodyMaker&) = delete;

  // In the order in which they will probably be taken. The caller bounds how many it expects.
  void expect(int64_t conversation, int64_t turn);
  // Made before, or now.
  std::string take(int64_t conversation, int64_t turn);
  // It was expected and will not be taken.
  void forget(int64_t conversation, int64_t turn);

 private:
  using Key = std::pair<int64_t, int64_t>;
  std::string make(const Key& key) const;
  void work();

  const Workload& workload_;
  const RequestOptions& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Key> expected_;
  std::map<Key, std::string> made_;
  Key making_{-1, -1};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace baton::load
