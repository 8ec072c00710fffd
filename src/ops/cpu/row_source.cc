#include "ops/cpu/row_source.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/packed_layout.h"

namespace baton::cpu {
namespace {

// Elements that one thread prepares in about the time that it takes to wake another.
constexpr int64_t kFillGrain = 16 * 1024;

}  // namespace

RowForm row_form(const GemmKernels& kernels, DType x, DType w, ops::ActivationQuant quant) {
  if (w == DType::kF8E4M3 && quant == ops::ActivationQuant::kE4m3Block) return RowForm::kE4m3;
  const bool bf16 = x == DType::kBF16 && w != DType::kF32;
  return bf16 && kernels.bf16_strip != nullptr ? RowForm::kBf16 : RowForm::kFloat;
}

RowSource::RowSource(Arena& arena, const GemmKernels& kernels, ConstMatrixView x, int64_t parts, RowForm form)
    : x_(x), form_(form), parts_(parts), k_(x.cols / parts), data_(static_cast<const std::byte*>(x.data)), dtype_(x.dtype) {
  stride_ = x.stride * dtype_bytes(x.dtype);
  part_stride_ = k_ * dtype_bytes(x.dtype);
  kernel_dtype_ = form == RowForm::kFloat || kernels.bf16_strip == nullptr ? DType::kF32 : DType::kBF16;
  filled_ = form == RowForm::kE4m3 || (form == RowForm::kBf16 && k_ % kTileDepth != 0);
  if (!filled_) return;
  dtype_ = kernel_dtype_;
  part_stride_ = padded_depth(DType::kBF16, k_) * dtype_bytes(dtype_);
  stride_ = parts * part_stride_;
  owned_ = arena.array<std::byte>(x.rows * stride_);
  data_ = owned_;
  if (form == RowForm::kE4m3) scale_ = arena.array<float>(x.rows * parts * groups());
}

void RowSource::fill(const ops::Executor& executor) const {
  if (!filled_) return;
  const int64_t grain = std::max<int64_t>(1, kFillGrain / std::max<int64_t>(1, x_.cols));
  executor.pool().parallel_for(x_.rows, grain, [&](int64_t begin, int64_t end, int) {
    float wide[1024];  // a multiple of kGroupDepth
    const int64_t element = dtype_bytes(x_.dtype);
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t part = 0; part < parts_; ++part) {
        const std::byte* from = x_.row_bytes(r) + part * k_ * element;
        std::byte* to = owned_ + r * stride_ + part * part_stride_;
        const int64_t used = k_ * dtype_bytes(dtype_);
        std::memset(to + used, 0, static_cast<size_t>(part_stride_ - used));
        if (form_ != RowForm::kE4m3) {
          std::memcpy(to, from, static_cast<size_t>(used));
          continue;
        }
        float* scale = scale_ + (r * parts_ + part) * groups();
        for (int64_t c = 0; c < k_; c += std::ssize(wide)) {
          const int64_t n = std::min<int64_t>(std::ssize(wide), k_ - c);
          executor.rows().widen(from + c * element, x_.dtype, wide, n);
          executor.gemms().quantise_row(wide, n, to + c * dtype_bytes(dtype_), dtype_, scale + c / kGroupDepth);
        }
      }
    }
  });
}

// An odd number of cache lines: rows a power of two apart would compete for the same sets of the first cache.
int64_t RowSource::copied_row_bytes() const { return (padded_depth(DType::kBF16, k_) * dtype_bytes(kernel_dtype_) / 64 | 1) * 64; }

int64_t RowSource::copy_bytes() const { return copied_row_bytes() + (form_ == RowForm::kE4m3 ? groups() * int64_t{sizeof(float)} : 0); }

void RowSource::take(const RowKernels& kernels, int64_t part, const int32_t* index, int64_t first, int64_t count, std::byte* scratch,
                     Strip& strip) const {
  strip.m = count;
  strip.k = k_;
  strip.x_scale_stride = parts_ * groups();
  if (!converts() && (index == nullptr || count == 1)) {
    const int64_t row = index == nullptr ? first : index[first];
    strip.x = at(row, part);
    strip.x_stride = stride_;
    strip.x_scale = scale_ == nullptr ? nullptr : scale_ + (row * parts_ + part) * groups();
    return;
  }
  const int64_t row_bytes = copied_row_bytes();
  auto* scales = reinterpret_cast<float*>(scratch + count * row_bytes);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = index == nullptr ? first + i : index[first + i];
    std::byte* to = scratch + i * row_bytes;
    if (converts())
      kernels.widen(at(row, part), dtype_, reinterpret_cast<float*>(to), k_);
    else
      std::memcpy(to, at(row, part), static_cast<size_t>(kernel_dtype_ == DType::kBF16 ? padded_depth(DType::kBF16, k_) * 2 : k_ * 4));
    if (scale_ != nullptr)
      std::memcpy(scales + i * groups(), scale_ + (row * parts_ + part) * groups(), static_cast<size_t>(groups()) * sizeof(float));
  }
  strip.x = scratch;
  strip.x_stride = row_bytes;
  strip.x_scale = scale_ == nullptr ? nullptr : scales;
  strip.x_scale_stride = groups();
}

}  // namespace baton::cpu
