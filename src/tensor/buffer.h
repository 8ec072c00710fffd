// Buffer: owned memory of one device. Arena: a bump allocator over a buffer that is planned once and reset every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/result.h"
#include "tensor/view.h"

namespace baton {

inline constexpr int64_t kBufferAlignment = 256;

constexpr int64_t align_up(int64_t n, int64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

// Move-only. The deleter frees what `data` points to.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::byte* data, int64_t bytes, void (*deleter)(std::byte*, int64_t)) : data_(data), bytes_(bytes), deleter_(deleter) {}
  Buffer(Buffer&& o) noexcept { swap(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    Buffer moved(std::move(o));
    swap(moved);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) deleter_(data_, bytes_);
  }
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(deleter_, o.deleter_);
  }
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  void (*deleter_)(std::byte*, int64_t) = nullptr;
};

// Zero-filled host memory, aligned to 256 bytes, backed by huge pages where the system grants them.
Result<Buffer> allocate_host(int64_t bytes);

// Not thread-safe. Exhaustion is a defect of the plan, so it is a check and not an error.
class Arena {
 public:
  Arena() = default;
  Arena(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}

  void* allocate(int64_t bytes) {
    const int64_t begin = used_;
    used_ = align_up(begin + bytes, kBufferAlignment);
    peak_ = used_ > peak_ ? used_ : peak_;
    if (base_ == nullptr) return nullptr;  // planning pass: only sizes are wanted
    BATON_CHECK_MSG(used_ <= bytes_, "arena of {} bytes, {} wanted", bytes_, used_);
    return base_ + begin;
  }
  template <class T>
  T* array(int64_t count) {
    return static_cast<T*>(allocate(count * static_cast<int64_t>(sizeof(T))));
  }
  MatrixView matrix(DType dtype, int64_t rows, int64_t cols) {
    return {allocate(rows * cols * dtype_bytes(dtype)), dtype, rows, cols, cols};
  }
  int64_t mark() const { return used_; }
  void release(int64_t mark) { used_ = mark; }
  int64_t peak() const { return peak_; }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace baton
