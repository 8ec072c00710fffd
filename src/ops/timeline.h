// When a device reached points of its order of work: what a measurement of single ops needs.
//
// Threads: that of the backend.
#pragma once

#include <cstddef>
#include <vector>

namespace baton::ops {

class Timeline {
 public:
  virtual ~Timeline() = default;
  // Notes point `i`, below the number that the timeline was made for, behind all that the backend was given so far. Waits for nothing.
  virtual void mark(size_t i) = 0;
  // Seconds from each of the first `count` points to the next one, `count` - 1 of them. Waits until the device has reached them.
  virtual std::vector<double> seconds(size_t count) = 0;
};

}  // namespace baton::ops
