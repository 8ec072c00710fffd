// Sampling from logits. One draw per row, keyed by (seed, position): the result depends on nothing else in the batch.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace baton::ops {

struct SamplingRow {
  float temperature = 0;  // 0: the largest logit, ties to the lower id
  float top_p = 1;        // keeps the smallest set of most likely tokens whose probability reaches top_p
  uint64_t seed = 0;
  int32_t position = 0;  // position that the sampled token will take
};

// Gumbel-max: argmax over the kept columns of logit / temperature + gumbel(seed, position, column), an exact draw from the softmax.
struct SampleParams {
  ConstMatrixView logits{};           // [m, vocabulary] kF32
  const SamplingRow* rows = nullptr;  // [m]
  int32_t* ids = nullptr;             // [m] out; -1 where a logit is not finite: nothing can be drawn from such a row
};

}  // namespace baton::ops
