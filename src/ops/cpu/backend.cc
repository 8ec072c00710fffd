#include "ops/cpu/backend.h"

#include <cstring>

#include "ops/cpu/packed_weight.h"
#include "ops/cpu/register.h"

namespace baton::ops {

Executor::Executor(int threads, cpu::Isa isa)
    : pool_(std::make_unique<cpu::ThreadPool>(threads)), rows_(&cpu::row_kernels(isa)), gemms_(&cpu::gemm_kernels(isa)) {
  BATON_CHECK_MSG(isa <= cpu::detect_isa(), "{} kernels on a machine of {}", cpu::isa_name(isa), cpu::isa_name(cpu::detect_isa()));
  cpu::register_gemm(table_);
  cpu::register_moe(table_);
  cpu::register_rows(table_);
  cpu::register_mhc(table_);
  cpu::register_kda(table_);
  cpu::register_latent(table_);
  cpu::register_indexer(table_);
  cpu::register_attention(table_);
  cpu::register_sample(table_);
  cpu::register_window(table_);
  cpu::register_block_conv(table_);
  cpu::register_draft_path(table_);
}

}  // namespace baton::ops

namespace baton::cpu {

CpuBackend::CpuBackend(const BackendOptions& options) : executor_(options.threads, options.isa) {}

void CpuBackend::copy_to_device(void* device, const void* host, int64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
}

void CpuBackend::copy_to_host(void* host, const void* device, int64_t bytes) {
  if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
}

void CpuBackend::copy_on_device(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void CpuBackend::clear_on_device(void* device, int64_t bytes) {
  if (bytes > 0) std::memset(device, 0, static_cast<size_t>(bytes));
}

int64_t CpuBackend::weight_bytes(DType dtype, int64_t n, int64_t k) const { return packed_bytes(dtype, n, k); }

void CpuBackend::store_weight(void* device, ConstMatrixView host) { pack(host, device); }

}  // namespace baton::cpu
