// Random weights of sane scale: activations neither vanish nor explode over depth, and no sub-layer is without effect.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/number.h"

namespace baton::model {

// Values of one tensor. Element i depends on the seed, the tensor's name and i alone, so tensors can be made in parts and in any order.
class RandomTensor {
 public:
  RandomTensor(std::string_view name, const std::vector<int64_t>& shape, uint64_t seed);

  // Elements first, first + 1, ... in row-major order.
  void fill(int64_t first, std::span<float> out) const;

  // Rows of a matrix [n, k] from `row`, a multiple of 128, on: at most 128 of them, quantised block by block; the largest value of a block
  // takes the largest code. codes [rows, k], scales [ceil(k / 128)].
  void fill_quantised(int64_t row, int64_t rows, int64_t k, std::span<e4m3> codes, std::span<float> scales) const;

 private:
  void fill_blocks(int64_t first_block, std::span<float> out) const;

  uint64_t key_;
  uint64_t seed_;
  bool uniform_ = false;
  float centre_ = 0;  // mean
  float spread_ = 1;  // standard deviation, or half the width of a uniform distribution
};

}  // namespace baton::model
