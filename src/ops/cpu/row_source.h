// The input of matrix products in the form that kernels read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/backend.h"
#include "ops/cpu/kernels/gemm_kernels.h"
#include "ops/weight.h"
#include "tensor/buffer.h"
#include "tensor/view.h"

namespace baton::cpu {

enum class RowForm : uint8_t {
  kFloat,  // float_strip; bf16 rows are widened block by block, exactly
  kBf16,   // bf16_strip
  kE4m3    // values of e4m3 with a scale per group, in the type of bf16_strip where there is one, else of float_strip
};
inline constexpr int kRowForms = 3;

// Which arithmetic a weight has with an input; part of the definition of the ops, see ops/gemm.h.
RowForm row_form(const GemmKernels& kernels, DType x, DType w, ops::ActivationQuant quant);

// Rows of `parts` * k columns; each product reads one part. Construction takes memory where the rows need another form than they have,
// fill() writes it.
class RowSource {
 public:
  RowSource() = default;
  RowSource(Arena& arena, const GemmKernels& kernels, ConstMatrixView x, int64_t parts, RowForm form);
  void fill(const ops::Executor& executor) const;

  int64_t k() const { return k_; }
  RowForm form() const { return form_; }
  // Columns of part `part` of `count` rows: rows first ..., or, with `index`, rows index[first] ... . Sets x, x_stride, x_scale,
  // x_scale_stride, m and k of the strip. Copies (to `scratch`, copy_bytes() per row) only what does not lie ready.
  void take(const RowKernels& kernels, int64_t part, const int32_t* index, int64_t first, int64_t count, std::byte* scratch,
            Strip& strip) const;
  // Whether rows that lie one after the other still need a copy.
  bool converts() const { return dtype_ != kernel_dtype_; }
  int64_t copy_bytes() const;

 private:
  const std::byte* at(int64_t row, int64_t part) const { return data_ + row * stride_ + part * part_stride_; }
  int64_t copied_row_bytes() const;
  int64_t groups() const { return (k_ + kGroupDepth - 1) / kGroupDepth; }

  ConstMatrixView x_{};
  RowForm form_ = RowForm::kFloat;
  int64_t parts_ = 1;
  int64_t k_ = 0;
  const std::byte* data_ = nullptr;
  int64_t stride_ = 0;       // bytes between rows
  int64_t part_stride_ = 0;  // bytes between parts
  DType dtype_ = DType::kF32;
  DType kernel_dtype_ = DType::kF32;
  std::byte* owned_ = nullptr;  // what fill() writes
  float* scale_ = nullptr;      // [rows, parts, groups]
  bool filled_ = false;         // whether fill() has anything to do
};

}  // namespace baton::cpu
