// Random weights of sane scale: activations neither vanish nor explode over depth, and no sub-layer is without effect.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace baton::model {

// Values of one tensor. Element i depends on the seed, the tensor's name and i alone, so tensors can be made in parts and in any order.
class RandomTensor {
 public:
  RandomTensor(std::string_view name, const std::vector<int64_t>& shape, uint64_t seed);

  // Elements first, first + 1, ... in row-major order.
  void fill(int64_t first, std::span<float> out) const;

 private:
  void fill_blocks(int64_t first_block, std::span<float> out) const;

  uint64_t key_;
  uint64_t seed_;
  bool uniform_ = false;
  float centre_ = 0;  // mean
  float spread_ = 1;  // standard deviation, or half the width of a uniform distribution
};

}  // namespace baton::model
