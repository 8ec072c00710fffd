#include "ops/cuda/gemm/product.cuh"

namespace baton::cuda::gemm {

cudaError_t start_bf16(const Params& p, Variant variant, bool dependent, cudaStream_t stream) {
  switch (variant) {
    case Variant::kFew: return start<Shape<false, false, 64, 128, 4, 2>>(p, dependent, stream);
    case Variant::kSome: return start<Shape<false, false, 128, 128, 3, 2>>(p, dependent, stream);
    case Variant::kMany: return start<Shape<false, false, 128, 256, 4, 1>>(p, dependent, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace baton::cuda::gemm
