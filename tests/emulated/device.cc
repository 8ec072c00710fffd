// The plain CUDA backend on the CPU: what opens a device elsewhere opens this where it is linked first.
#include "ops/cuda/open.h"
#include "ops/cuda/plain/attention.cu"
#include "ops/cuda/plain/drafter.cu"
#include "ops/cuda/plain/gemm.cu"
#include "ops/cuda/plain/indexer.cu"
#include "ops/cuda/plain/kda.cu"
#include "ops/cuda/plain/mhc.cu"
#include "ops/cuda/plain/moe.cu"
#include "ops/cuda/plain/rows.cu"
#include "ops/cuda/plain/sample.cu"

namespace baton::cuda::plain {

alignas(1024) std::byte shared_memory[64 << 10];

namespace {

class EmulatedBackend final : public ops::Backend {
 public:
  EmulatedBackend() {
    register_all(table_);
    emulated::shared = shared_memory;
  }
  const ops::OpTable& ops() const override { return table_; }
  ops::Executor& executor() override { return executor_of(stream_); }
  Result<Buffer> allocate(int64_t bytes) override { return allocate_host(bytes); }
  void copy_to_device(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, static_cast<size_t>(bytes)); }
  void copy_to_host(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, static_cast<size_t>(bytes)); }
  void copy_on_device(void* to, const void* from, int64_t bytes) override { std::memcpy(to, from, static_cast<size_t>(bytes)); }
  void clear_on_device(void* to, int64_t bytes) override { std::memset(to, 0, static_cast<size_t>(bytes)); }
  void synchronize() override {}
  int64_t weight_bytes(DType dtype, int64_t n, int64_t k) const override { return n * k * dtype_bytes(dtype); }
  void store_weight(void* to, ConstMatrixView host) override {
    for (int64_t r = 0; r < host.rows; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * host.cols * dtype_bytes(host.dtype), host.row_bytes(r),
                  static_cast<size_t>(host.cols * dtype_bytes(host.dtype)));
  }

 private:
  ops::OpTable table_;
  Stream stream_;
};

}  // namespace
}  // namespace baton::cuda::plain

namespace baton::cuda {

Result<OpenedDevice> open_device(const DeviceOptions&) {
  return OpenedDevice{std::make_unique<plain::EmulatedBackend>(), "an emulated device", int64_t{1} << 30};
}

}  // namespace baton::cuda
