#include "ops/cuda/gemm/product.cuh"

namespace baton::cuda::gemm {

cudaError_t start_e4m3_gated(const Params& p, Variant variant, bool dependent, cudaStream_t stream) {
  return variant == Variant::kFew ? start<Shape<true, true, 64, 128, 4, 2>>(p, dependent, stream)
                                  : start<Shape<true, true, 128, 128, 6, 1>>(p, dependent, stream);
}

}  // namespace baton::cuda::gemm
