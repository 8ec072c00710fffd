// Picks the kernels of an instruction set.
#include "ops/cpu/kernels/gemm_kernels.h"
#include "ops/cpu/kernels/row_kernels.h"

namespace baton::cpu {

namespace plain {
extern const RowKernels kRowKernels;
extern const GemmKernels kGemmKernels;
}  // namespace plain
namespace avx2 {
extern const RowKernels kRowKernels;
extern const GemmKernels kGemmKernels;
}  // namespace avx2
namespace avx512 {
extern const RowKernels kRowKernels;
extern const GemmKernels kGemmKernels;
}  // namespace avx512
namespace amx {
extern const GemmKernels kGemmKernels;
}  // namespace amx

const RowKernels& row_kernels(Isa isa) {
  switch (isa) {
    case Isa::kPlain: return plain::kRowKernels;
    case Isa::kAvx2: return avx2::kRowKernels;
    case Isa::kAvx512:
    case Isa::kAmx: return avx512::kRowKernels;
  }
  return plain::kRowKernels;
}

const GemmKernels& gemm_kernels(Isa isa) {
  switch (isa) {
    case Isa::kPlain: return plain::kGemmKernels;
    case Isa::kAvx2: return avx2::kGemmKernels;
    case Isa::kAvx512: return avx512::kGemmKernels;
    case Isa::kAmx: return amx::kGemmKernels;
  }
  return plain::kGemmKernels;
}

}  // namespace baton::cpu
