// A device on which only time passes: it holds nothing, draws any tokens, and of the drafts of a cycle so many are right that a cycle
// yields what it is told to in the mean.
//
// Threads: none of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/cycle.h"
#include "sim/random.h"

namespace baton::sim {

class TimedDevice {
 public:
  // `yield`: tokens of a cycle for each sequence that decodes, from 1 up; drafts have to be enough for it.
  TimedDevice(int32_t slots, int32_t vocabulary, double yield, uint64_t seed);

  // What came of the cycle's draws; valid until the next call.
  sched::Drawn run(const sched::Cycle& cycle);

 private:
  struct Slot {
    int32_t position = 0;  // rows that count
    int32_t limit = 0;     // rows end before it
  };
  int32_t yield_of(const sched::Rows& rows, Slot& slot);

  std::vector<Slot> slots_;
  uint32_t vocabulary_;
  double yield_;
  Random random_;
  uint32_t drawn_ = 0;
  std::vector<int32_t> tokens_, ends_, drafted_;
};

}  // namespace baton::sim
