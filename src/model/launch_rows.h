// What the rows of a launch belong to, put together on the host and uploaded at once: ids | sequences | row_sequence | positions | tables.
//
// Threads: one at a time.
#pragma once

#include <span>
#include <vector>

#include "model/glm5_next.h"

namespace baton::model {

class LaunchRowsBuffer {
 public:
  static int64_t bytes(int64_t rows, int64_t sequences, int64_t pages);
  static Result<LaunchRowsBuffer> create(ops::Backend& backend, int64_t rows, int64_t sequences, int64_t pages);

  // `ids` of all rows; sequences without gaps. tables[slot]: pages of a sequence, as wide in the launch as the longest needs that goes on
  // for `reach` more positions. Valid until the next upload().
  ForwardInput upload(std::span<const ops::SequenceRows> sequences, std::span<const int32_t> ids,
                      const std::vector<std::vector<int32_t>>& tables, int64_t reach = 0);

 private:
  explicit LaunchRowsBuffer(ops::Backend& backend) : backend_(&backend) {}

  ops::Backend* backend_;
  Buffer device_;
  std::vector<int32_t> staging_;
};

}  // namespace baton::model
