// Samples with arrays of the host, wherever the logits are: brings rows, biases, bans and masks to the device in one copy, and what was
// drawn back in another.
//
// Threads: one at a time.
#pragma once

#include <span>
#include <vector>

#include "model/glm5_next.h"

namespace baton::model {

class HostSampling {
 public:
  // Both outlive this.
  HostSampling(Glm5Next& model, ops::Backend& backend) : model_(&model), backend_(&backend) {}

  // All arrays but the logits and the probabilities are the host's. Waits for the device. Its memory grows to what the largest call needs.
  void sample(const ops::SampleParams& host);

 private:
  Glm5Next* model_;
  ops::Backend* backend_;
  Buffer memory_;
  std::vector<std::byte> staging_;
};

}  // namespace baton::model
