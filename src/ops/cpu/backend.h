// The CPU as a device: host memory, a thread pool, and kernels of one instruction set.
#pragma once

#include <memory>

#include "ops/cpu/isa.h"
#include "ops/cpu/kernels/gemm_kernels.h"
#include "ops/cpu/kernels/row_kernels.h"
#include "ops/cpu/thread_pool.h"
#include "ops/op_table.h"

namespace baton::ops {

// The execution state of the CPU backend. One caller at a time.
class Executor {
 public:
  Executor(int threads, cpu::Isa isa);

  cpu::ThreadPool& pool() const { return *pool_; }
  const cpu::RowKernels& rows() const { return *rows_; }
  const cpu::GemmKernels& gemms() const { return *gemms_; }
  const OpTable& table() const { return table_; }  // for ops that are made of other ops

 private:
  std::unique_ptr<cpu::ThreadPool> pool_;
  const cpu::RowKernels* rows_;
  const cpu::GemmKernels* gemms_;
  OpTable table_;
};

}  // namespace baton::ops

namespace baton::cpu {

struct BackendOptions {
  int threads = 1;
  Isa isa = Isa::kPlain;  // at most detect_isa()
};

class CpuBackend final : public ops::Backend {
 public:
  explicit CpuBackend(const BackendOptions& options);

  const ops::OpTable& ops() const override { return executor_.table(); }
  ops::Executor& executor() override { return executor_; }
  Result<Buffer> allocate(int64_t bytes) override { return allocate_host(bytes); }
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void copy_on_device(void* to, const void* from, int64_t bytes) override;
  void clear_on_device(void* device, int64_t bytes) override;
  void synchronize() override {}
  int64_t weight_bytes(DType dtype, int64_t n, int64_t k) const override;
  void store_weight(void* device, ConstMatrixView host) override;

 private:
  ops::Executor executor_;
};

}  // namespace baton::cpu
