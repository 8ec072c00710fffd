#include "ops/cuda/gemm/launch.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/gemm/params.h"
#include "ops/cuda/gemm/quantise.cuh"

namespace baton::cuda::gemm {
namespace {

constexpr int64_t kBlock = ops::kScaleBlock;
constexpr int64_t kAlign = 256;
int64_t round_up(int64_t n, int64_t a) { return (n + a - 1) / a * a; }
bool aligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

bool fits_x(const ConstMatrixView& x) { return x.dtype == DType::kBF16 && x.stride % 8 == 0 && aligned(x.data, 16) && x.rows < (1 << 30); }
// Two neighbours are written at once.
bool fits_y(const MatrixView& y) {
  return (y.dtype == DType::kBF16 || y.dtype == DType::kF32) && y.cols % 2 == 0 && y.stride % 2 == 0 &&
         aligned(y.data, y.dtype == DType::kF32 ? 8 : 4);
}
bool is_rounded(const ops::WeightView& w, ops::ActivationQuant quant) {
  return w.dtype == DType::kF8E4M3 && quant == ops::ActivationQuant::kE4m3Block;
}
bool fits_weight(const ops::WeightView& w, ops::ActivationQuant quant) {
  return aligned(w.data, 16) && ((w.dtype == DType::kBF16 && w.k % 8 == 0) || (is_rounded(w, quant) && w.k % kBlock == 0));
}

// x in e4m3, in the workspace.
struct Codes {
  int64_t rows, k;
  int64_t scale_stride() const { return round_up(rows, 4); }
  int64_t code_bytes() const { return round_up(rows * k, kAlign); }
  int64_t bytes() const { return code_bytes() + k / kBlock * scale_stride() * 4; }
  float* scales(void* workspace) const { return reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + code_bytes()); }
};

cudaError_t quantise(const ConstMatrixView& x, const Codes& codes, void* workspace, cudaStream_t stream) {
  const QuantiseParams q{
      static_cast<const std::byte*>(x.data), x.stride * 2, static_cast<uint4*>(workspace), codes.scales(workspace), codes.scale_stride(),
      static_cast<int32_t>(codes.k)};
  return launch(quantise_rows, static_cast<unsigned>(x.rows), kQuantiseThreads, 0, 1, false, stream, q);
}

// A launch in the making.
struct Launch {
  Params p{};
  Variant variant;
  bool fp8, gated;
  bool maps = true;  // all could be made

  Launch(int64_t rows, int64_t columns, int64_t k, bool is_fp8, bool is_gated) : fp8(is_fp8), gated(is_gated) {
    variant = configure(rows, columns, fp8, multiprocessors());
    const Tile tile = tile_of(variant, fp8);
    p.rows = static_cast<int32_t>(rows);
    p.steps = static_cast<int32_t>((k * element_bytes() + kStepBytes - 1) / kStepBytes);
    p.row_tiles = static_cast<int32_t>((rows + tile.rows - 1) / tile.rows);
    p.members = 1;
  }

  int element_bytes() const { return fp8 ? 1 : 2; }
  CUtensorMapDataType type() const { return fp8 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; }
  void map(CUtensorMap& to, const void* data, int64_t rows, int64_t cols, int64_t stride, int box_rows) {
    maps = maps && make_tensor_map(&to, data, type(), element_bytes(), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
                                   static_cast<uint64_t>(stride * element_bytes()), static_cast<uint32_t>(box_rows),
                                   static_cast<uint32_t>(kStepBytes / element_bytes()));
  }
  void rows_from(const void* data, int64_t cols, int64_t stride) { map(p.x, data, p.rows, cols, stride, tile_of(variant, fp8).rows); }
  void codes_from(const Codes& codes, void* workspace) {
    rows_from(workspace, codes.k, codes.k);
    p.x_scale = codes.scales(workspace);
    p.x_scale_stride = codes.scale_stride();
  }
  // `rows` of the weight's matrix: of all members.
  void add(const ops::WeightView& w, const MatrixView& y, int64_t rows) {
    const Tile tile = tile_of(variant, fp8);
    const int region = tile.columns / (tile.rows == 64 ? 2 : 1);
    map(p.w[p.outputs], w.data, rows, w.k, w.k, gated ? region / 2 : region);
    p.out[p.outputs++] = {static_cast<std::byte*>(y.data), y.stride,       w.scale,
                          static_cast<int32_t>(w.n),       p.column_tiles, y.dtype == DType::kF32};
    if (gated && p.outputs == 2) return;
    const int columns = gated ? tile.columns / 2 : tile.columns;
    p.column_tiles += static_cast<int32_t>((w.n + columns - 1) / columns);
  }
  cudaError_t start(cudaStream_t stream) const {
    if (!maps) return cudaErrorInvalidValue;
    if (p.outputs == 0 || p.steps == 0) return cudaSuccess;
    return (gated ? start_e4m3_gated : fp8 ? start_e4m3 : start_bf16)(p, variant, false, stream);
  }
};

// Bytes between members that lie at equal distances, a multiple of a row; 0: they do not.
int64_t member_rows(std::span<const ops::WeightView> w) {
  if (w.size() < 2) return w[0].n;
  const auto at = [&w](size_t i) { return static_cast<const std::byte*>(w[i].data); };
  const int64_t distance = at(1) - at(0);
  const int64_t row = w[0].k * 2;
  if (distance <= 0 || distance % row != 0) return 0;
  for (size_t i = 0; i < w.size(); ++i)
    if (at(i) != at(0) + static_cast<int64_t>(i) * distance) return 0;
  return distance / row;
}

}  // namespace

bool supported(const ops::GemmParams& p) {
  if (!fits_x(p.x) || p.x.cols == 0 || std::ssize(p.outputs) > kMostOutputs) return false;
  return std::all_of(p.outputs.begin(), p.outputs.end(),
                     [&p](const ops::GemmOutput& o) { return fits_weight(o.w, p.quant) && o.w.k == p.x.cols && fits_y(o.y); });
}

int64_t workspace_bytes(const ops::GemmParams& p) {
  const bool rounds = std::any_of(p.outputs.begin(), p.outputs.end(), [&p](const ops::GemmOutput& o) { return is_rounded(o.w, p.quant); });
  return rounds ? Codes{p.x.rows, p.x.cols}.bytes() : 0;
}

cudaError_t run(const ops::GemmParams& p, void* workspace, cudaStream_t stream) {
  if (p.x.rows == 0) return cudaSuccess;
  for (const bool fp8 : {true, false}) {
    int64_t columns = 0;
    for (const ops::GemmOutput& o : p.outputs) columns += is_rounded(o.w, p.quant) == fp8 ? o.w.n : 0;
    if (columns == 0) continue;
    Launch l(p.x.rows, columns, p.x.cols, fp8, false);
    if (fp8) {
      const Codes codes{p.x.rows, p.x.cols};
      if (const cudaError_t e = quantise(p.x, codes, workspace, stream); e != cudaSuccess) return e;
      l.codes_from(codes, workspace);
    } else {
      l.rows_from(p.x.data, p.x.cols, p.x.stride);
    }
    for (const ops::GemmOutput& o : p.outputs)
      if (is_rounded(o.w, p.quant) == fp8) l.add(o.w, o.y, o.w.n);
    if (const cudaError_t e = l.start(stream); e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

bool supported(const ops::GemmBatchedParams& p) {
  if (p.w.empty() || !fits_x(p.x) || !fits_y(p.y)) return false;
  const ops::WeightView& first = p.w[0];
  const bool alike = std::all_of(
      p.w.begin(), p.w.end(), [&first](const ops::WeightView& w) { return w.dtype == DType::kBF16 && w.n == first.n && w.k == first.k; });
  return alike && aligned(first.data, 16) && first.n % 2 == 0 && first.k % 64 == 0 && p.x.cols == first.k * std::ssize(p.w) &&
         member_rows(p.w) > 0;
}

cudaError_t run(const ops::GemmBatchedParams& p, cudaStream_t stream) {
  if (p.x.rows == 0) return cudaSuccess;
  const ops::WeightView& w = p.w[0];
  const int64_t members = std::ssize(p.w);
  Launch l(p.x.rows, w.n * members, w.k, false, false);
  l.p.members = static_cast<int32_t>(members);
  l.p.x_part = static_cast<int32_t>(w.k);
  l.p.w_part = static_cast<int32_t>(member_rows(p.w));
  l.p.y_part = static_cast<int32_t>(w.n);
  l.rows_from(p.x.data, p.x.cols, p.x.stride);
  l.add(w, p.y, (members - 1) * l.p.w_part + w.n);
  return l.start(stream);
}

bool supported(const ops::GatedMlpParams& p) {
  return fits_x(p.x) && is_rounded(p.gate, p.quant) && is_rounded(p.up, p.quant) && fits_weight(p.gate, p.quant) &&
         fits_weight(p.up, p.quant) && p.gate.k == p.x.cols && p.up.k == p.x.cols && p.up.n == p.gate.n && fits_y(p.h);
}

int64_t workspace_bytes(const ops::GatedMlpParams& p) { return Codes{p.x.rows, p.x.cols}.bytes(); }

cudaError_t run(const ops::GatedMlpParams& p, void* workspace, cudaStream_t stream) {
  if (p.x.rows == 0) return cudaSuccess;
  const Codes codes{p.x.rows, p.x.cols};
  if (const cudaError_t e = quantise(p.x, codes, workspace, stream); e != cudaSuccess) return e;
  Launch l(p.x.rows, 2 * p.gate.n, p.x.cols, true, true);
  l.p.limit = p.limit;
  l.codes_from(codes, workspace);
  l.add(p.gate, p.h, p.gate.n);
  l.add(p.up, p.h, p.up.n);
  return l.start(stream);
}

}  // namespace baton::cuda::gemm
