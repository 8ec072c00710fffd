// Ops that a backend was given once and runs again as they were, without the host's part in each: a CUDA graph.
//
// Threads: that of the backend.
#pragma once

namespace baton::ops {

class Recording {
 public:
  virtual ~Recording() = default;
  // Behind all that the backend was given so far. The same ops with the same params: what changes between runs is read from device memory.
  virtual void replay() = 0;
};

}  // namespace baton::ops
