// Matrix products in AMX tiles. A tile product costs the same for 1 and for 16 rows of x and is faster than memory delivers weights, so
// every m takes this path, and a row's bits cannot depend on its company.
#include "ops/cpu/kernels/expand_e4m3.h"
#include "ops/cpu/kernels/gemm_kernels.h"
#include "ops/cpu/kernels/gemm_rows.h"
#include "ops/cpu/kernels/vec16.h"
#include "ops/cpu/packed_layout.h"

namespace baton::cpu {
namespace avx512 {
extern const GemmKernels kGemmKernels;
}  // namespace avx512

namespace BATON_ISA_NAMESPACE {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTilesPerGroup = kGroupDepth / kTileDepth;

// Tile registers: sums 0 1 (first 16 rows) and 2 3 (next 16 rows), x in 4 (first rows) and 5 (next rows), weights in 6 and 7. With few rows
// 0 ... 3 are four blocks of the same rows.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};

// Loading a configuration clears all tiles and costs tens of cycles: each thread remembers which one it has.
thread_local int64_t configured_rows = -1;

// The intrinsics that read memory do not tell the compiler so (GCC 12): what was written before must be in memory.
BATON_INLINE void publish(const void* p) { __asm__ volatile("" : : "r"(p) : "memory"); }

void configure(int64_t first_rows, int64_t next_rows) {
  const int64_t key = first_rows * 32 + next_rows;
  if (configured_rows == key) return;
  TileConfig c;
  c.rows[0] = c.rows[1] = c.rows[4] = static_cast<uint8_t>(first_rows);
  c.rows[2] = c.rows[3] = c.rows[5] = static_cast<uint8_t>(next_rows);
  c.rows[6] = c.rows[7] = kTileRows;
  publish(&c);
  _tile_loadconfig(&c);
  configured_rows = key;
}

// x of `tiles` tiles from `x`, and blocks of the weight `w_stride` bytes apart.
struct Operands {
  const std::byte* x;
  int64_t x_stride;
  const std::byte* w;
  int64_t w_stride;
  int64_t tiles;
  const std::byte* next_w;
};

// Tiles between prefetch and use of a block: far enough to hide memory, near enough to stay in the first cache.
constexpr int64_t kTilesAhead = 4;

template <bool kFromMemory>
BATON_INLINE void prefetch_tile(const std::byte* w) {
  if constexpr (!kFromMemory) return;
  for (int64_t line = 0; line < kTileBytes; line += 64) _mm_prefetch(reinterpret_cast<const char*>(w + line), _MM_HINT_T0);
}

// Up to 16 rows x kBlocks blocks.
template <int kBlocks, bool kFromMemory>
BATON_INLINE void few_rows(const Operands& o, float* y, int64_t y_stride) {
  _tile_zero(0);
  if constexpr (kBlocks > 1) _tile_zero(1);
  if constexpr (kBlocks > 2) _tile_zero(2);
  if constexpr (kBlocks > 3) _tile_zero(3);
  const int64_t ahead = o.tiles < kTilesAhead ? o.tiles : kTilesAhead;
  for (int64_t i = 0; i < o.tiles; ++i) {
    const std::byte* w = o.w + i * kTileBytes;
    const std::byte* next = i + ahead < o.tiles ? w + ahead * kTileBytes : o.next_w + (i + ahead - o.tiles) * kTileBytes;
    _tile_loadd(4, o.x + i * 64, o.x_stride);
    prefetch_tile<kFromMemory>(next);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kBlocks > 1) {
      prefetch_tile<kFromMemory>(next + o.w_stride);
      _tile_loadd(7, w + o.w_stride, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kBlocks > 2) {
      prefetch_tile<kFromMemory>(next + 2 * o.w_stride);
      _tile_loadd(6, w + 2 * o.w_stride, 64);
      _tile_dpbf16ps(2, 4, 6);
    }
    if constexpr (kBlocks > 3) {
      prefetch_tile<kFromMemory>(next + 3 * o.w_stride);
      _tile_loadd(7, w + 3 * o.w_stride, 64);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  _tile_stored(0, y, y_stride * 4);
  if constexpr (kBlocks > 1) _tile_stored(1, y + 16, y_stride * 4);
  if constexpr (kBlocks > 2) _tile_stored(2, y + 32, y_stride * 4);
  if constexpr (kBlocks > 3) _tile_stored(3, y + 48, y_stride * 4);
}

// 17 ... 32 rows x kBlocks (1 or 2) blocks.
template <int kBlocks>
BATON_INLINE void many_rows(const Operands& o, float* y, int64_t y_stride) {
  _tile_zero(0);
  _tile_zero(2);
  if constexpr (kBlocks > 1) {
    _tile_zero(1);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < o.tiles; ++i) {
    const std::byte* w = o.w + i * kTileBytes;
    _tile_loadd(6, w, 64);
    _tile_loadd(4, o.x + i * 64, o.x_stride);
    _tile_loadd(5, o.x + kTileRows * o.x_stride + i * 64, o.x_stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kBlocks > 1) _tile_loadd(7, w + o.w_stride, 64);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kBlocks > 1) {
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, y, y_stride * 4);
  _tile_stored(2, y + kTileRows * y_stride, y_stride * 4);
  if constexpr (kBlocks > 1) {
    _tile_stored(1, y + 16, y_stride * 4);
    _tile_stored(3, y + kTileRows * y_stride + 16, y_stride * 4);
  }
}

// All blocks of a strip for `rows` <= 32 rows. kFromMemory: the weights are likely not in a cache yet.
template <bool kFromMemory>
void tile_rows(Operands o, int64_t rows, int64_t blocks, float* y, int64_t y_stride) {
  publish(o.w);
  if (rows <= kTileRows) {
    configure(rows, rows);
    if (blocks == 4)
      few_rows<4, kFromMemory>(o, y, y_stride);
    else if (blocks == 3)
      few_rows<3, kFromMemory>(o, y, y_stride);
    else if (blocks == 2)
      few_rows<2, kFromMemory>(o, y, y_stride);
    else
      few_rows<1, kFromMemory>(o, y, y_stride);
    return;
  }
  configure(kTileRows, rows - kTileRows);
  for (; blocks >= 2; blocks -= 2, o.w += 2 * o.w_stride, y += 32) many_rows<2>(o, y, y_stride);
  if (blocks == 1) many_rows<1>(o, y, y_stride);
}

// y = fma(p, scale, y), of quantised rows fma(p * row scale, scale, y).
void add_group(const Strip& s, int64_t r0, int64_t rows, int64_t g, const float* partial) {
  const Vec16 scale = broadcast16(s.w_scale[g]);
  for (int64_t r = 0; r < rows; ++r) {
    const Vec16 row_scale = broadcast16(s.x_scale == nullptr ? 1.0F : s.x_scale[(r0 + r) * s.x_scale_stride + g]);
    float* y = s.y + (r0 + r) * s.y_stride;
    for (int64_t b = 0; b < s.blocks; ++b) {
      const Vec16 p = {_mm512_mul_ps(load16(partial + r * kStripColumns + b * 16).v, row_scale.v)};
      store16(y + b * 16, fma(p, scale, g == 0 ? zero16() : load16(y + b * 16)));
    }
  }
}

void grouped_strip(const Strip& s) {
  const int64_t block = block_bytes(s.w_dtype, s.k);
  const int64_t tiles = padded_depth(s.w_dtype, s.k) / kTileDepth;
  auto* expanded = static_cast<std::byte*>(s.scratch);
  auto* partial = reinterpret_cast<float*>(expanded + kStripBlocks * kTilesPerGroup * kTileBytes);
  for (int64_t g = 0; g * kTilesPerGroup < tiles; ++g) {
    const int64_t first = g * kTilesPerGroup;
    const int64_t count = tiles - first < kTilesPerGroup ? tiles - first : kTilesPerGroup;
    for (int64_t b = 0; b < s.blocks; ++b)
      expand_e4m3(static_cast<const uint8_t*>(s.w) + b * block + first * kTileBytes / 2,
                  reinterpret_cast<uint16_t*>(expanded + b * count * kTileBytes), count * kTileBytes / 128);
    for (int64_t r = 0; r < s.m; r += 2 * kTileRows) {
      const int64_t rows = s.m - r < 2 * kTileRows ? s.m - r : 2 * kTileRows;
      const std::byte* x = static_cast<const std::byte*>(s.x) + r * s.x_stride + first * 64;
      tile_rows<false>({x, s.x_stride, expanded, count * kTileBytes, count, expanded}, rows, s.blocks, partial, kStripColumns);
      add_group(s, r, rows, g, partial);
    }
  }
}

void bf16_strip(const Strip& s) {
  if (s.w_dtype == DType::kF8E4M3) return grouped_strip(s);
  const int64_t tiles = padded_depth(s.w_dtype, s.k) / kTileDepth;
  const auto* w = static_cast<const std::byte*>(s.w);
  for (int64_t r = 0; r < s.m; r += 2 * kTileRows) {
    const int64_t rows = s.m - r < 2 * kTileRows ? s.m - r : 2 * kTileRows;
    const std::byte* x = static_cast<const std::byte*>(s.x) + r * s.x_stride;
    tile_rows<true>({x, s.x_stride, w, block_bytes(s.w_dtype, s.k), tiles, static_cast<const std::byte*>(s.next_w)}, rows, s.blocks,
                    s.y + r * s.y_stride, s.y_stride);
  }
}

void float_strip(const Strip& s) { avx512::kGemmKernels.float_strip(s); }

}  // namespace

extern const GemmKernels kGemmKernels;
const GemmKernels kGemmKernels = {
    .float_strip = float_strip,
    .bf16_strip = bf16_strip,
    .quantise_row = quantise_row,
    .store = store_rows,
    .swiglu = swiglu_rows,
    .weighted_sum = weighted_sum,
};

}  // namespace BATON_ISA_NAMESPACE
}  // namespace baton::cpu
