// How much memory whole answers take together, from their first token until their last byte has been sent, and how much they may.
//
// A streamed answer has a bound of its own; one that is kept whole grows with its choices, its length and its log-probabilities.
#pragma once

#include <atomic>
#include <cstdint>

namespace baton::server {

class AnswerMemory {
 public:
  explicit AnswerMemory(int64_t most_bytes) : most_(most_bytes) {}
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

  // What one answer takes. Its bytes are given back with it, on whatever thread that is.
  class Share {
   public:
    explicit Share(AnswerMemory& memory) : memory_(memory) {}
    ~Share() { memory_.held_.fetch_sub(bytes_, std::memory_order_relaxed); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    // One thread at a time. False, and nothing is added, if all answers together would take more than they may.
    bool add(int64_t bytes) {
      if (memory_.held_.fetch_add(bytes, std::memory_order_relaxed) + bytes > memory_.most_) {
        memory_.held_.fetch_sub(bytes, std::memory_order_relaxed);
        return false;
      }
      bytes_ += bytes;
      return true;
    }

   private:
    AnswerMemory& memory_;
    int64_t bytes_ = 0;
  };

 private:
  const int64_t most_;
  std::atomic<int64_t> held_{0};
};

}  // namespace baton::server
