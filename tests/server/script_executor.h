// An executor whose model writes what its prompt says: the words of the last user, markers read as markers. For tests of a server, where
// the client decides what comes, and for measurements of everything but a model.
//
// Of a prompt without roles, all of it is written. Words of command at the beginning:
//   #repeat N TEXT   TEXT, N times
//   #fail N TEXT     the device fails when token N is to be drawn
// Behind the script, the request's first stop token, or the tokenizer's <|endoftext|>.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/cycle_executor.h"
#include "text/tokenizer.h"

namespace baton::tests {

class ScriptExecutor final : public engine::CycleExecutor {
 public:
  // A cycle takes `pace` at least. The tokenizer outlives it.
  ScriptExecutor(const text::Tokenizer& tokenizer, int64_t columns, int32_t slots, std::chrono::microseconds pace);
  ~ScriptExecutor() override;

  void launch(const sched::Cycle& cycle, std::span<const engine::BoundChoice> bound) override;
  const engine::CycleResult* poll() override;
  void on_result(std::function<void()> notify) override { notify_ = std::move(notify); }

 private:
  struct Script {
    std::vector<int32_t> tokens;
    int64_t prompt = 0;
    int64_t fails_at = -1;
    int32_t end = 0;
    engine::Constraint* constraint = nullptr;
  };
  Script script_of(const engine::BoundChoice& bound) const;
  int32_t token_of(const Script& script, const sched::Draw& draw, int32_t index, engine::CycleResult& result);
  void serve();

  const text::Tokenizer& tokenizer_;
  const int64_t columns_;
  const std::chrono::microseconds pace_;
  std::vector<Script> slots_;
  std::vector<uint32_t> mask_;

  struct Job {
    std::vector<sched::Draw> draws;
    std::vector<std::pair<int32_t, Script>> binds;
    engine::CycleResult result;
  };
  std::function<void()> notify_ = [] {};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Job, sched::kCyclesInFlight> jobs_;
  int64_t launched_ = 0, done_ = 0, polled_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace baton::tests
