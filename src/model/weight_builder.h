// Brings the tensors of a TensorSet into a backend's memory and order.
//
// Weights are built twice with the same code: a first pass, without memory, only adds up bytes; the second hands out addresses and collects
// copy jobs, which several threads then run.
#pragma once

#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/tensor_set.h"
#include "ops/op_table.h"

namespace baton::model {

// Called from the loading threads with bytes done of bytes in all; may be empty.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

class WeightBuilder {
 public:
  // `base`: bytes() of device memory, or null in the first pass.
  WeightBuilder(const TensorSet& set, ops::Backend& backend, std::byte* base) : set_(set), backend_(backend), base_(base) {}

  int64_t bytes() const { return used_; }
  // Fails if a small tensor holds what is not a number, or memory runs out.
  Status run_jobs(int threads, const LoadProgress& progress);

  // A tensor that validation has found.
  const TensorEntry& tensor(const std::string& name) const;
  static ConstMatrixView matrix_of(const TensorEntry& t);

  // As it lies in the file.
  const void* raw_copy(const TensorEntry& t);
  // The gathered tensors one behind the other, each widened.
  const float* floats(std::initializer_list<std::string> names);
  const float* floats(const std::string& name) { return floats({name}); }
  // In the backend's order, with its scale if it has one.
  ops::WeightView matrix(const std::string& name);

  // Room for a weight that a job fills.
  ops::WeightView reserve(DType dtype, int64_t n, int64_t k);
  void job(int64_t bytes, std::function<void()> run);
  ops::Backend& backend() { return backend_; }

 private:
  struct Job {
    int64_t bytes;
    std::function<void()> run;
  };

  bool failed();
  void fail(Error error);
  void expect_finite(const TensorEntry& t, const float* values);
  void* take(int64_t bytes);

  const TensorSet& set_;
  ops::Backend& backend_;
  std::byte* base_;
  int64_t used_ = 0;
  std::vector<Job> jobs_;
  std::mutex mutex_;
  std::optional<Error> failure_;
};

}  // namespace baton::model
