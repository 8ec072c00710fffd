#include "model/weight_builder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <thread>

#include <fmt/format.h>

namespace baton::model {
namespace {

// Element of a possibly unaligned float tensor.
float element(const TensorEntry& t, int64_t i) {
  if (t.dtype == DType::kF32) {
    float x = 0;
    std::memcpy(&x, t.data + i * 4, 4);
    return x;
  }
  bf16 x{};
  std::memcpy(&x, t.data + i * 2, 2);
  return to_float(x);
}

// Tensors are read in pieces of about this size, so that mapped pages and their copies are never both there for long.
constexpr int64_t kPieceBytes = 8 << 20;

}  // namespace

Status WeightBuilder::run_jobs(int thread_count, const LoadProgress& progress) {
  std::atomic<size_t> next{0};
  std::atomic<int64_t> done{0};
  // Largest first: the threads finish together.
  std::sort(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) { return a.bytes > b.bytes; });
  int64_t total = 0;
  for (const Job& job : jobs_) total += job.bytes;
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < jobs_.size() && !failed(); i = next.fetch_add(1)) {
      try {
        jobs_[i].run();
      } catch (const std::bad_alloc&) {
        fail({Error::Kind::kExhausted, "out of memory while loading the weights"});
      }
      const int64_t now = done.fetch_add(jobs_[i].bytes) + jobs_[i].bytes;
      if (progress) progress(now, total);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < thread_count; ++i) threads.emplace_back(work);
    work();
  }
  if (failure_) return *failure_;
  return {};
}

bool WeightBuilder::failed() {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

void WeightBuilder::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
}

// Small tensors are looked at whole: one value that is not a number spoils everything, or hides behind a comparison.
void WeightBuilder::expect_finite(const TensorEntry& t, const float* values) {
  for (int64_t i = 0; i < t.elements(); ++i)
    if (!std::isfinite(values[i]))
      return fail({Error::Kind::kInvalid, fmt::format("{}: tensor {} holds {} at index {}; the checkpoint is damaged", set_.dir().string(),
                                                      t.name, values[i], i)});
}

void* WeightBuilder::take(int64_t bytes) {
  const int64_t begin = used_;
  used_ = align_up(begin + bytes, kBufferAlignment);
  return base_ == nullptr ? nullptr : base_ + begin;
}

void WeightBuilder::job(int64_t bytes, std::function<void()> run) {
  if (base_ != nullptr) jobs_.push_back({bytes, std::move(run)});
}

const TensorEntry& WeightBuilder::tensor(const std::string& name) const {
  const TensorEntry* t = set_.find(name);
  BATON_CHECK_MSG(t != nullptr, "tensor {} passed validation and is gone", name);
  return *t;
}

ConstMatrixView WeightBuilder::matrix_of(const TensorEntry& t) {
  const int64_t cols = t.shape.size() > 1 ? t.elements() / t.shape[0] : t.elements();
  return {t.data, t.dtype, t.shape.size() > 1 ? t.shape[0] : 1, cols, cols};
}

const void* WeightBuilder::raw_copy(const TensorEntry& t) {
  auto* to = static_cast<std::byte*>(take(t.bytes));
  if (to == nullptr) return nullptr;
  for (int64_t first = 0; first < t.bytes; first += kPieceBytes) {
    const int64_t bytes = std::min(kPieceBytes, t.bytes - first);
    job(bytes, [this, to, &t, first, bytes] {
      backend_.copy_to_device(to + first, t.data + first, bytes);
      TensorSet::drop_pages(t.data + first, bytes);
    });
  }
  return to;
}

const float* WeightBuilder::floats(std::initializer_list<std::string> names) {
  int64_t count = 0;
  std::vector<const TensorEntry*> parts;
  for (const std::string& name : names) {
    parts.push_back(&tensor(name));
    count += parts.back()->elements();
  }
  void* to = take(count * 4);
  job(count * 4, [this, to, parts, count] {
    std::vector<float> host;
    host.reserve(static_cast<size_t>(count));
    for (const TensorEntry* t : parts) {
      for (int64_t i = 0; i < t->elements(); ++i) host.push_back(element(*t, i));
      expect_finite(*t, host.data() + host.size() - t->elements());
    }
    backend_.copy_to_device(to, host.data(), count * 4);
  });
  return static_cast<const float*>(to);
}

ops::WeightView WeightBuilder::matrix(const std::string& name) {
  const TensorEntry& t = tensor(name);
  const ConstMatrixView host = matrix_of(t);
  ops::WeightView w = reserve(host.dtype, host.rows, host.cols);
  const int64_t row_bytes = host.cols * dtype_bytes(host.dtype);
  const int64_t step = std::max<int64_t>(1, kPieceBytes / (row_bytes * ops::kStoreRows)) * ops::kStoreRows;
  for (int64_t first = 0; first < host.rows && base_ != nullptr; first += step) {
    const ConstMatrixView piece = host.row_range(first, std::min(step, host.rows - first));
    void* to = static_cast<std::byte*>(const_cast<void*>(w.data)) + backend_.weight_bytes(host.dtype, first, host.cols);
    job(piece.rows * row_bytes, [this, piece, to, row_bytes] {
      backend_.store_weight(to, piece);
      TensorSet::drop_pages(piece.row_bytes(0), piece.rows * row_bytes);
    });
  }
  if (const TensorEntry* scale = set_.scale_of(name)) w.scale = static_cast<const float*>(raw_copy(*scale));
  return w;
}

ops::WeightView WeightBuilder::reserve(DType dtype, int64_t n, int64_t k) {
  return {take(backend_.weight_bytes(dtype, n, k)), nullptr, dtype, n, k};
}

}  // namespace baton::model
