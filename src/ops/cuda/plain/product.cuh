// Products of rows with weights, dense, per head or per expert: 64 x 64 outputs a block. Rows and weights in float multiply on the ordinary
// units, narrower ones (bf16, e4m3) exactly on the tensor cores; sums are float.
//
// An element is summed over k in groups of 128: one order for one kind of units, whatever the number of rows and wherever a row lies.
#pragma once

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/matrix.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/plain/block.cuh"
#include "ops/cuda/plain/element.cuh"
#include "ops/weight.h"

namespace baton::cuda::plain {

inline constexpr int kTile = 64;   // rows and columns of a block
inline constexpr int kDepth = 32;  // k's in shared memory at a time
inline constexpr int kGroup = 128;

// Row-major weights at equal distances: one for each head or expert of a launch.
struct WeightSet {
  const std::byte* data = nullptr;
  const float* scale = nullptr;
  int64_t stride = 0;        // bytes
  int64_t scale_stride = 0;  // floats
  DType type = DType::kF32;
};

struct ProductParams {
  ConstRows x;                     // codes if x_scale is there
  const float* x_scale = nullptr;  // [rows, x_groups]
  int64_t x_groups = 0;
  int64_t x_part = 0;  // columns between the parts of x that members take
  WeightSet w;
  WeightSet up;  // without data: y = x w^T; with: y = silu(min(x w^T, limit)) * clamp(x up^T, +-limit)
  float limit = 0;
  Rows y;
  int64_t y_part = 0;
  int32_t n = 0, k = 0;
  int32_t rows = 0;     // of each member; with offsets: of all together
  int32_t members = 1;  // heads, or experts from first_member on
  int32_t first_member = 0;
  const int32_t* offsets = nullptr;  // member e has rows offsets[e] ... offsets[e + 1] - 1
  const int32_t* gather = nullptr;   // row r is row gather[r] of x
};

inline ProductParams plain_rows(const ConstMatrixView& x) {
  ProductParams p;
  p.x = rows_of(x);
  return p;
}

// Row blocks that are launched for each column block.
inline int64_t row_units(const ProductParams& p) {
  const int64_t tiles = (p.rows + kTile - 1) / kTile;
  return p.offsets == nullptr ? tiles * p.members : p.rows / kTile + p.members;
}

// Unit `unit` of a launch with offsets: sets member and first row; false where there is none. All lanes of the warp call it.
__device__ __forceinline__ bool find_unit(const ProductParams& p, int unit, int& member, int& first, int& end) {
  int before = 0;
  for (int base = 0; base < p.members; base += 32) {
    const int e = base + lane();
    const int begin = e < p.members ? p.offsets[p.first_member + e] : 0;
    const int count = e < p.members ? p.offsets[p.first_member + e + 1] - begin : 0;
    int sum = (count + kTile - 1) / kTile;
    const int own = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
      if (lane() >= step) sum += other;
    }
    const uint32_t reached = __ballot_sync(0xFFFFFFFFU, before + sum > unit);
    if (reached != 0) {
      const int from = __popc((reached & (~reached + 1U)) - 1U);  // lowest lane
      member = base + from;
      const int tile = unit - before - (__shfl_sync(0xFFFFFFFFU, sum, from) - __shfl_sync(0xFFFFFFFFU, own, from));
      const int start = __shfl_sync(0xFFFFFFFFU, begin, from);
      first = start + tile * kTile;
      end = start + __shfl_sync(0xFFFFFFFFU, count, from);
      return true;
    }
    before += __shfl_sync(0xFFFFFFFFU, sum, 31);
  }
  return false;
}

// Thread t brings half of the 32 columns of row t / 2 of a tile to shared memory.
//
// Units say how a tile lies there, how it is multiplied, and which 32 outputs of the block a thread sums.

struct FloatUnits {
  static constexpr int kPitch = kTile + 1;  // [k][row]
  static constexpr int kTileBytes = kDepth * kPitch * 4;
  static constexpr int kRows = 8;
  static constexpr int kColumns = 4;
  using Piece = float[16];

  __device__ static int row(int i) { return thread() / 16 + 8 * i; }
  __device__ static int column(int j) { return thread() % 16 + 16 * j; }
  __device__ static void fetch(const std::byte* row, DType type, int64_t first, int64_t end, Piece& piece) {
    if (row != nullptr) return load16(row, type, first, end, piece);
#pragma unroll
    for (float& v : piece) v = 0;
  }
  __device__ static void put(const Piece& piece, float* tile) {
    const int half = thread() % 2 * 16;
#pragma unroll
    for (int i = 0; i < 16; ++i) tile[(half + i) * kPitch + thread() / 2] = piece[i];
  }
  __device__ static void multiply(const float* x, const float* w, float (&sums)[kRows][kColumns]) {
    for (int k = 0; k < kDepth; ++k) {
      float a[kRows];
      float b[kColumns];
#pragma unroll
      for (int i = 0; i < kRows; ++i) a[i] = x[k * kPitch + row(i)];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) b[j] = w[k * kPitch + column(j)];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
    }
  }
};

// A warp has 32 x 32 outputs, two by four products of 16 x 8 x 16.
struct TensorUnits {
  static constexpr int kPitch = kDepth / 2 + 4;  // [row][pair of k]: fragments of a warp lie in 32 banks
  static constexpr int kTileBytes = kTile * kPitch * 4;
  static constexpr int kRows = 4;
  static constexpr int kColumns = 8;
  using Piece = uint32_t[8];

  __device__ static int row(int i) { return warp() / 2 * 32 + i / 2 * 16 + i % 2 * 8 + lane() / 4; }
  __device__ static int column(int j) { return warp() % 2 * 32 + j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  __device__ static void fetch(const std::byte* row, DType type, int64_t first, int64_t end, Piece& piece) {
    const std::byte* p = row + first * 2;
    if (row != nullptr && type == DType::kBF16 && first + 16 <= end && (reinterpret_cast<uintptr_t>(p) & 15U) == 0) {
      const uint4 low = reinterpret_cast<const uint4*>(p)[0];
      const uint4 high = reinterpret_cast<const uint4*>(p)[1];
      piece[0] = low.x, piece[1] = low.y, piece[2] = low.z, piece[3] = low.w;
      piece[4] = high.x, piece[5] = high.y, piece[6] = high.z, piece[7] = high.w;
      return;
    }
    float values[16];
    FloatUnits::fetch(row, type, first, end, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) piece[i] = pack_bf16x2(values[2 * i], values[2 * i + 1]);
  }
  __device__ static void put(const Piece& piece, float* tile) {
    auto* to = reinterpret_cast<uint4*>(reinterpret_cast<uint32_t*>(tile) + thread() / 2 * kPitch + thread() % 2 * 8);
    to[0] = make_uint4(piece[0], piece[1], piece[2], piece[3]);
    to[1] = make_uint4(piece[4], piece[5], piece[6], piece[7]);
  }
  __device__ static void multiply(const float* x, const float* w, float (&sums)[kRows][kColumns]) {
    const auto* rows = reinterpret_cast<const uint32_t*>(x) + (warp() / 2 * 32 + lane() / 4) * kPitch + lane() % 4;
    const auto* columns = reinterpret_cast<const uint32_t*>(w) + (warp() % 2 * 32 + lane() / 4) * kPitch + lane() % 4;
#pragma unroll
    for (int k = 0; k < kDepth / 2; k += 8) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = rows[(m * 16 + i % 2 * 8) * kPitch + k + i / 2 * 4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t b0 = columns[n * 8 * kPitch + k];
        const uint32_t b1 = columns[n * 8 * kPitch + k + 4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          float d[4] = {sums[2 * m][2 * n], sums[2 * m][2 * n + 1], sums[2 * m + 1][2 * n], sums[2 * m + 1][2 * n + 1]};
          mma_bf16(d, a[m][0], a[m][1], a[m][2], a[m][3], b0, b1);
          sums[2 * m][2 * n] = d[0], sums[2 * m][2 * n + 1] = d[1];
          sums[2 * m + 1][2 * n] = d[2], sums[2 * m + 1][2 * n + 1] = d[3];
        }
      }
    }
  }
};

template <class Units>
using Sums = float[Units::kRows][Units::kColumns];

template <class Units>
__device__ __forceinline__ void clear(Sums<Units>& sums) {
#pragma unroll
  for (auto& row : sums)
#pragma unroll
    for (float& v : row) v = 0;
}

// One weight's sums for the rows of the block. What comes next is on its way while a tile is multiplied.
template <class Units>
__device__ __forceinline__ void sum_tile(const ProductParams& p, const WeightSet& w, int member, const std::byte* x_row, int column,
                                         const int32_t (&scale_row)[Units::kRows], Sums<Units>& total) {
  float* xs = shared_floats();
  float* ws = xs + Units::kTileBytes / 4;
  const int64_t w_row_bytes = int64_t{p.k} * (w.type == DType::kF32 ? 4 : w.type == DType::kBF16 ? 2 : 1);
  const int w_column = column + thread() / 2;
  const std::byte* w_row = w_column < p.n ? w.data + member * w.stride + w_column * w_row_bytes : nullptr;
  const int half = thread() % 2 * 16;
  const int scale_columns = (p.k + 127) / 128;
  clear<Units>(total);
  typename Units::Piece x_piece;
  typename Units::Piece w_piece;
  Units::fetch(x_row, p.x.type, half, p.k, x_piece);
  Units::fetch(w_row, w.type, half, p.k, w_piece);
  for (int group = 0; group < p.k; group += kGroup) {
    const int end = group + kGroup < p.k ? group + kGroup : p.k;
    Sums<Units> part;
    clear<Units>(part);
    for (int k = group; k < end; k += kDepth) {
      __syncthreads();
      Units::put(x_piece, xs);
      Units::put(w_piece, ws);
      __syncthreads();
      if (k + kDepth < p.k) {
        Units::fetch(x_row, p.x.type, k + kDepth + half, p.k, x_piece);
        Units::fetch(w_row, w.type, k + kDepth + half, p.k, w_piece);
      }
      Units::multiply(xs, ws, part);
    }
#pragma unroll
    for (int i = 0; i < Units::kRows; ++i)
#pragma unroll
      for (int j = 0; j < Units::kColumns; ++j) {
        const int c = column + Units::column(j);
        if (w.scale == nullptr || c >= p.n) {
          total[i][j] += part[i][j];
          continue;
        }
        const float x =
            p.x_scale == nullptr || scale_row[i] < 0 ? part[i][j] : part[i][j] * p.x_scale[scale_row[i] * p.x_groups + group / kGroup];
        total[i][j] = fmaf(x, w.scale[member * w.scale_stride + int64_t{c / 128} * scale_columns + group / 128], total[i][j]);
      }
  }
}

template <class Units, bool kGated>
__global__ void __launch_bounds__(kThreads) product(ProductParams p, int32_t units) {
  const int unit = static_cast<int>(blockIdx.x) % units;
  const int column = static_cast<int>(blockIdx.x) / units * kTile;
  int member = 0;
  int first = 0;
  int end = p.rows;
  if (p.offsets != nullptr) {
    if (!find_unit(p, unit, member, first, end)) return;
  } else {
    const int tiles = (p.rows + kTile - 1) / kTile;
    member = unit / tiles;
    first = unit % tiles * kTile;
  }
  const auto source = [&](int r) { return p.gather == nullptr ? r : p.gather[r]; };
  const int64_t x_element = p.x.type == DType::kF32 ? 4 : p.x.type == DType::kBF16 ? 2 : 1;
  const int mine = first + thread() / 2;
  const std::byte* x_row = mine < end ? p.x.row(source(mine)) + member * p.x_part * x_element : nullptr;
  int32_t scale_row[Units::kRows];
#pragma unroll
  for (int i = 0; i < Units::kRows; ++i) scale_row[i] = first + Units::row(i) < end ? source(first + Units::row(i)) : -1;

  Sums<Units> sums;
  sum_tile<Units>(p, p.w, member, x_row, column, scale_row, sums);
  if constexpr (kGated) {
    Sums<Units> up;
    sum_tile<Units>(p, p.up, member, x_row, column, scale_row, up);
#pragma unroll
    for (int i = 0; i < Units::kRows; ++i)
#pragma unroll
      for (int j = 0; j < Units::kColumns; ++j) sums[i][j] = silu(fminf(sums[i][j], p.limit)) * fmaxf(fminf(up[i][j], p.limit), -p.limit);
  }
#pragma unroll
  for (int i = 0; i < Units::kRows; ++i) {
    const int r = first + Units::row(i);
    if (r >= end) continue;
#pragma unroll
    for (int j = 0; j < Units::kColumns; ++j) {
      const int c = column + Units::column(j);
      if (c < p.n) p.y.put(r, member * p.y_part + c, sums[i][j]);
    }
  }
}

template <class Units>
cudaError_t launch_product_on(const ProductParams& p, cudaStream_t stream) {
  const int64_t units = row_units(p);
  const int64_t columns = (p.n + kTile - 1) / kTile;
  return launch(p.up.data != nullptr ? product<Units, true> : product<Units, false>, static_cast<unsigned>(units * columns), kThreads,
                2 * Units::kTileBytes, 1, false, stream, p, static_cast<int32_t>(units));
}

inline cudaError_t launch_product(const ProductParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.n == 0 || p.members == 0) return cudaSuccess;
  const bool narrow = p.x.type != DType::kF32 && p.w.type != DType::kF32;
  return narrow ? launch_product_on<TensorUnits>(p, stream) : launch_product_on<FloatUnits>(p, stream);
}

// Rows rounded to e4m3 per 128 columns: a warp a group.
struct QuantiseParams {
  ConstRows x;
  uint8_t* codes = nullptr;  // [rows, pitch]
  float* scale = nullptr;    // [rows, groups]
  int64_t pitch = 0;
  int32_t rows = 0, k = 0, groups = 0;
};

template <int kColumns>
__global__ void __launch_bounds__(kThreads) quantise(QuantiseParams p) {
  static_assert(kColumns == 4 * 32, "a lane has four columns of a group");
  const int64_t item = int64_t{blockIdx.x} * kWarps + warp();
  if (item >= int64_t{p.rows} * p.groups) return;
  const int64_t r = item / p.groups;
  const int group = static_cast<int>(item % p.groups);
  float values[4];
  float top = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = group * kColumns + i * 32 + lane();
    values[i] = c < p.k ? p.x.at(r, c) : 0.0F;
    top = fmaxf(top, fabsf(values[i]));
  }
  top = lanes_max<1, 16>(top);
  const float scale = top > 0 ? top / 448.0F : 1.0F;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = group * kColumns + i * 32 + lane();
    if (c < p.k) p.codes[r * p.pitch + c] = to_e4m3_bits(values[i] / scale);
  }
  if (lane() == 0) p.scale[r * p.groups + group] = scale;
}

// The rows of a launch as its weights want them, in workspace where they are rounded.
class RoundedRows {
 public:
  RoundedRows(Arena& arena, const ConstMatrixView& x) : x_(x), groups_((x.cols + kGroup - 1) / kGroup), pitch_(align_up(x.cols, 16)) {
    codes_ = arena.array<uint8_t>(x.rows * pitch_);
    scale_ = arena.array<float>(x.rows * groups_);
  }
  static int64_t bytes(const ConstMatrixView& x) {
    Arena plan;
    const RoundedRows rows(plan, x);
    return plan.peak();
  }
  cudaError_t fill(cudaStream_t stream) const {
    const QuantiseParams p{
        rows_of(x_), codes_, scale_, pitch_, static_cast<int32_t>(x_.rows), static_cast<int32_t>(x_.cols), static_cast<int32_t>(groups_)};
    return launch(quantise<kGroup>, static_cast<unsigned>((x_.rows * groups_ + kWarps - 1) / kWarps), kThreads, 0, 1, false, stream, p);
  }
  void use(ProductParams& p) const {
    p.x = {reinterpret_cast<const std::byte*>(codes_), pitch_, DType::kF8E4M3};
    p.x_scale = scale_;
    p.x_groups = groups_;
  }

 private:
  ConstMatrixView x_;
  int64_t groups_;
  int64_t pitch_;
  uint8_t* codes_ = nullptr;
  float* scale_ = nullptr;
};

inline bool rounds(const ops::WeightView& w, ops::ActivationQuant quant) {
  return w.dtype == DType::kF8E4M3 && quant == ops::ActivationQuant::kE4m3Block;
}

// How many weights from weights[0] on lie at equal distances: those that one launch takes.
inline int64_t evenly_spaced(const ops::WeightView* w, int64_t count) {
  const auto at = [&](int64_t i) { return static_cast<const std::byte*>(w[i].data); };
  int64_t n = 1;
  while (n < count && w[n].dtype == w[0].dtype && at(n) - at(n - 1) == at(1) - at(0) &&
         (w[0].scale == nullptr) == (w[n].scale == nullptr) &&
         (w[0].scale == nullptr || w[n].scale - w[n - 1].scale == w[1].scale - w[0].scale))
    ++n;
  return n;
}
inline WeightSet weight_set(const ops::WeightView* w, int64_t count) {
  WeightSet s{static_cast<const std::byte*>(w[0].data), w[0].scale, 0, 0, w[0].dtype};
  if (count > 1) {
    s.stride = static_cast<const std::byte*>(w[1].data) - s.data;
    if (s.scale != nullptr) s.scale_stride = w[1].scale - w[0].scale;
  }
  return s;
}

}  // namespace baton::cuda::plain
