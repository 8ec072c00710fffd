#include "ops/cpu/kernels/row_kernels.h"

namespace baton::cpu {

namespace plain {
extern const RowKernels kRowKernels;
}
namespace avx2 {
extern const RowKernels kRowKernels;
}
namespace avx512 {
extern const RowKernels kRowKernels;
}

const RowKernels& row_kernels(Isa isa) {
  switch (isa) {
    case Isa::kPlain: return plain::kRowKernels;
    case Isa::kAvx2: return avx2::kRowKernels;
    case Isa::kAvx512:
    case Isa::kAmx: return avx512::kRowKernels;
  }
  return plain::kRowKernels;
}

}  // namespace baton::cpu
