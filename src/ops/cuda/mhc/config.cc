#include "ops/cuda/mhc/config.h"

#include "ops/cuda/mhc/params.h"

namespace baton::cuda::mhc {
namespace {

bool bf16_rows(const auto& view, int64_t columns) {
  return view.dtype == DType::kBF16 && view.cols == columns && view.stride % 8 == 0;  // 16-byte accesses
}

}  // namespace

bool supported(const ops::MhcMixParams& p) {
  return p.stream_count == kStreams && bf16_rows(p.streams, kStreams * kWidth) && (p.y.empty() || bf16_rows(p.y, kWidth)) &&
         bf16_rows(p.x, kWidth) && p.fn.dtype == DType::kBF16 && p.fn.n == kMix && p.fn.k == kStreams * kWidth &&
         p.to.post.dtype == DType::kF32 && p.to.comb.dtype == DType::kF32 && p.sinkhorn_iterations >= 1;
}
bool supported(const ops::MhcExpandParams& p) {
  return p.stream_count == kStreams && bf16_rows(p.streams, kStreams * kWidth) && bf16_rows(p.y, kWidth);
}
bool supported(const ops::MhcFinalParams& p) {
  return p.stream_count == kStreams && bf16_rows(p.streams, kStreams * kWidth) && bf16_rows(p.h, kWidth);
}

}  // namespace baton::cuda::mhc
