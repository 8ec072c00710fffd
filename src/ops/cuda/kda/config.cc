#include "ops/cuda/kda/config.h"

#include "ops/cuda/kda/decode_limits.h"

namespace baton::cuda::kda {
namespace {

constexpr int64_t kVector = 8;  // bf16 elements of a 16-byte access

const char* unsupported(const ops::KdaWeights& w, const ops::KdaSlotLayout& layout, int64_t slot_stride) {
  if (w.dim != kDim) return "a head is not 128 wide";
  if (w.heads <= 0 || w.heads % kVector != 0) return "the number of heads is not a multiple of 8";
  if (layout.activation_dtype != DType::kBF16) return "activations are not bf16";
  if (layout.state_dtype != DType::kBF16 && layout.state_dtype != DType::kF32) return "the state is neither bf16 nor f32";
  if (layout.ring_rows < 0 || layout.ring_rows > kMaxTokens) return "the replay ring holds more than 8 rows";
  if (layout.state_offset % 16 != 0 || layout.window_offset % 16 != 0 || layout.ring_offset % 16 != 0 || slot_stride % 16 != 0)
    return "parts of a slot are not aligned to 16 bytes";
  return nullptr;
}

bool rows_fit(const ConstMatrixView& m) { return m.dtype == DType::kBF16 && m.stride % kVector == 0; }

}  // namespace

const char* unsupported(const ops::KdaParams& p) {
  if (const char* why = unsupported(p.weights, p.layout, p.slots.stride)) return why;
  if (!rows_fit(p.inputs) || !rows_fit(p.gate) || !rows_fit(p.y)) return "inputs, gate or y are not bf16 rows at multiples of 16 bytes";
  return nullptr;
}

const char* unsupported(const ops::KdaFoldParams& p) { return unsupported(p.weights, p.layout, p.slots.stride); }

}  // namespace baton::cuda::kda
