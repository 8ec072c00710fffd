// Views: pointers with shapes. They own nothing and may point into host or device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "tensor/number.h"

namespace baton {

// Row-major [rows, cols] of one dtype; `stride` is the distance between rows in elements.
template <class Void>
struct BasicMatrixView {
  Void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  bool empty() const { return data == nullptr; }
  // First element of a row, in bytes.
  auto row_bytes(int64_t r) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return static_cast<Byte*>(data) + r * stride * dtype_bytes(dtype);
  }
  template <class T>
  auto row(int64_t r) const {
    using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
    return static_cast<Element*>(data) + r * stride;
  }
  // Parts of a view without data are views without data: sizes can be planned before memory exists.
  BasicMatrixView columns(int64_t first, int64_t count) const {
    return {empty() ? nullptr : static_cast<Void*>(row_bytes(0) + first * dtype_bytes(dtype)), dtype, rows, count, stride};
  }
  BasicMatrixView row_range(int64_t first, int64_t count) const {
    return {empty() ? nullptr : static_cast<Void*>(row_bytes(first)), dtype, count, cols, stride};
  }
  operator BasicMatrixView<const void>() const  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<Void>) {
    return {data, dtype, rows, cols, stride};
  }
};

using MatrixView = BasicMatrixView<void>;
using ConstMatrixView = BasicMatrixView<const void>;

}  // namespace baton
