// Token embedding: row ids[r] of the table, copied to every stream.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace baton::ops {

struct EmbedParams {
  const int32_t* ids = nullptr;  // [m], each in [0, table.rows)
  ConstMatrixView table{};       // [vocabulary, d], kF32 or kBF16, row-major
  int64_t streams = 1;
  MatrixView y{};  // [m, streams * d], stream-major, kF32 or kBF16
};

}  // namespace baton::ops
