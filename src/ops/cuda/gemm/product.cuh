// Dense products on the tensor cores: one tile of outputs a block, rows on the M side. DESIGN.md: shapes, floors, what is not known.
//
// A producer thread brings boxes of 128 bytes of k from row-major matrices; two warpgroups multiply. Tiles of 128 rows: each group has 64
// of them and all columns. Tiles of 64 rows: each has all rows and half of the columns, its *region*. Gated tiles hold as many columns of
// gate as of up in each region, so that a thread has both of an output.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/fast_math.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/device/wgmma_bf16.cuh"
#include "ops/cuda/device/wgmma_e4m3.cuh"
#include "ops/cuda/gemm/params.h"

namespace baton::cuda::gemm {

inline constexpr int kConsumerWarps = 8;

// Every consumer thread hands a stage back itself where the race checker should see it; one a warp is enough otherwise.
#ifdef BATON_RACECHECK
inline constexpr int kArrivingLanes = 32;
#else
inline constexpr int kArrivingLanes = 1;
#endif

template <bool kIsFp8, bool kIsGated, int kTileRows, int kTileColumns, int kRing, int kBlocksEach>
struct Shape {
  static constexpr bool kFp8 = kIsFp8;
  static constexpr bool kGated = kIsGated;
  static constexpr int kRows = kTileRows;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kStages = kRing;
  static constexpr int kBlocks = kBlocksEach;  // on a multiprocessor
  static constexpr int kRegions = kRows == 64 ? 2 : 1;
  static constexpr int kRegion = kColumns / kRegions;                // columns of a warpgroup
  static constexpr int kBox = kGated ? kRegion / 2 : kRegion;        // columns of a copy: of one matrix
  static constexpr int kOutputs = kGated ? kColumns / 2 : kColumns;  // columns of y that a tile writes
  static constexpr int kSums = kRegion / 2;                          // of a thread
  static constexpr int kStepElements = kFp8 ? kStepBytes : kStepBytes / 2;
  static constexpr uint32_t kStageBytes = (kRows + kColumns) * kStepBytes;
  // Two consumer warpgroups, then the producer: one warp where registers suffice as they are (112 a thread); with one block a whole
  // warpgroup, which gives its registers to the others.
  static constexpr bool kMovesRegisters = kBlocks == 1;
  static constexpr int kThreads = 32 * kConsumerWarps + (kMovesRegisters ? 128 : 32);
};

template <class S>
struct Shared {
  uint8_t rows[S::kStages][S::kRows * kStepBytes];
  uint8_t columns[S::kStages][S::kColumns * kStepBytes];
  Barrier full[S::kStages];
  Barrier empty[S::kStages];
};

// What a block computes.
struct Work {
  int32_t output;
  int32_t member;
  int32_t row;     // first
  int32_t column;  // first, of the output
};

template <class S>
__device__ __forceinline__ Work work_of(const Params& p) {
  const Place place = place_of(static_cast<int32_t>(blockIdx.x), p.row_tiles, p.column_tiles);
  int output = 0;
  while (!S::kGated && output + 1 < p.outputs && p.out[output + 1].first_tile <= place.column) ++output;
  return {output, place.member, place.row * S::kRows, (place.column - p.out[output].first_tile) * S::kOutputs};
}

template <class S>
__device__ __forceinline__ void produce(const Params& p, Shared<S>& s, const Work& work) {
  const uint64_t keep = policy_evict_normal();
  const uint64_t once = p.row_tiles == 1 ? policy_evict_first() : keep;  // weights that no other block reads
  RingCursor at;
  for (int step = 0; step < p.steps; ++step) {
    s.empty[at.index].wait(at.parity ^ 1);
    Barrier& full = s.full[at.index];
    full.expect(S::kStageBytes);
    const int k = step * S::kStepElements;
    tensor_load(s.rows[at.index], p.x, work.member * p.x_part + k, work.row, full, keep);
#pragma unroll
    for (int box = 0; box < S::kColumns / S::kBox; ++box) {
      const int matrix = S::kGated ? box % 2 : work.output;
      const int column = work.column + (S::kGated ? box / 2 : box) * S::kBox;
      tensor_load(s.columns[at.index] + box * S::kBox * kStepBytes, p.w[matrix], k, work.member * p.w_part + column, full, once);
    }
    at.advance(S::kStages);
  }
}

template <class S>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Params& p, Shared<S>& s, const Work& work, int group)
      : p_(p), s_(s), work_(work), group_(group), lane_(static_cast<int>(threadIdx.x) % 32),
        row_(work.row + (S::kRows == 128 ? 64 * group : 0) + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane_ / 4) {}

  __device__ __forceinline__ void run() {
    if constexpr (S::kFp8)
      sum_codes();
    else
      sum_bf16();
    if constexpr (S::kGated)
      store_gated();
    else
      store();
  }

 private:
  __device__ __forceinline__ uint64_t rows(uint32_t stage) const {
    return swizzled_operand(s_.rows[stage] + (S::kRows == 128 ? group_ * 64 * kStepBytes : 0));
  }
  __device__ __forceinline__ uint64_t columns(uint32_t stage) const {
    return swizzled_operand(s_.columns[stage] + (S::kRegions == 2 ? group_ * S::kRegion * kStepBytes : 0));
  }
  __device__ __forceinline__ void hand_back(uint32_t stage) {
    if (kArrivingLanes == 1) __syncwarp();
    if (lane_ < kArrivingLanes) s_.empty[stage].arrive();
  }

  // One accumulator from the first k to the last; a step's products run while the next step is waited for.
  __device__ __forceinline__ void sum_bf16() {
    RingCursor at;
    uint32_t before = 0;
    for (int step = 0; step < p_.steps; ++step) {
      s_.full[at.index].wait(at.parity);
      const uint64_t a = rows(at.index);
      const uint64_t b = columns(at.index);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i)
        WgmmaBf16<S::kRegion>::run(sum_, a + 2 * static_cast<uint64_t>(i), b + 2 * static_cast<uint64_t>(i), step + i > 0 ? 1 : 0);
      wgmma_commit();
      if (step > 0) {
        wgmma_wait<1>();
        hand_back(before);
      }
      before = at.index;
      at.advance(S::kStages);
    }
    wgmma_wait<0>();
    pin_registers(sum_);
  }

  // 128 k in the tensor core's accumulator, then one addition in float with the scales of the row and of the weight's block.
  __device__ __forceinline__ void sum_codes() {
    const int last = p_.rows - 1;
    const float* const scale0 = p_.x_scale + (row_ < last ? row_ : last);
    const float* const scale1 = p_.x_scale + (row_ + 8 < last ? row_ + 8 : last);
    const int64_t block = int64_t{work_.column} / 128 * p_.steps;
    const float* const weight0 = p_.out[work_.output].scale + block;
    const float* const weight1 = p_.out[S::kGated ? 1 : work_.output].scale + block;
#pragma unroll
    for (float& v : sum_) v = 0;
    RingCursor at;
    for (int step = 0; step < p_.steps; ++step) {
      const float row0 = __ldg(scale0 + step * p_.x_scale_stride);
      const float row1 = __ldg(scale1 + step * p_.x_scale_stride);
      const float w0 = __ldg(weight0 + step);
      const float w1 = __ldg(weight1 + step);
      s_.full[at.index].wait(at.parity);
      const uint64_t a = rows(at.index);
      const uint64_t b = columns(at.index);
      float part[S::kSums];
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i) WgmmaE4m3<S::kRegion>::run(part, a + 2 * static_cast<uint64_t>(i), b + 2 * static_cast<uint64_t>(i), i);
      wgmma_commit();
      wgmma_wait<0>();
      pin_registers(part);
      hand_back(at.index);
      at.advance(S::kStages);
#pragma unroll
      for (int i = 0; i < S::kSums; ++i) {
        const float w = i < S::kSums / 2 ? w0 : w1;  // the same but in gated tiles
        sum_[i] = fmaf(part[i], (i % 4 < 2 ? row0 : row1) * w, sum_[i]);
      }
    }
  }

  // y[row][column, + 1] of output `o`.
  __device__ __forceinline__ void put(const Output& o, int row, int column, float a, float b) const {
    if (row >= p_.rows || column >= o.n) return;
    const int64_t at = int64_t{row} * o.y_stride + int64_t{work_.member} * p_.y_part + column;
    if (o.is_float)
      *reinterpret_cast<float2*>(o.y + at * 4) = make_float2(a, b);
    else
      *reinterpret_cast<uint32_t*>(o.y + at * 2) = pack_bf16x2(a, b);
  }
  __device__ __forceinline__ void store() const {
    const Output& o = p_.out[work_.output];
    const int first = work_.column + (S::kRegions == 2 ? group_ * S::kRegion : 0) + lane_ % 4 * 2;
#pragma unroll
    for (int j = 0; j < S::kRegion / 8; ++j) {
      put(o, row_, first + 8 * j, sum_[4 * j], sum_[4 * j + 1]);
      put(o, row_ + 8, first + 8 * j, sum_[4 * j + 2], sum_[4 * j + 3]);
    }
  }
  __device__ __forceinline__ float gate(float g, float u) const {
    g = fminf(g, p_.limit);
    u = fminf(fmaxf(u, -p_.limit), p_.limit);
    return g / (1.0F + exp2_fast(-1.44269504088896340736F * g)) * u;
  }
  __device__ __forceinline__ void store_gated() const {
    const Output& o = p_.out[0];
    const int first = work_.column + (S::kRegions == 2 ? group_ * S::kBox : 0) + lane_ % 4 * 2;
    constexpr int kUp = S::kSums / 2;
#pragma unroll
    for (int j = 0; j < S::kBox / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = 4 * j + 2 * half;
        put(o, row_ + 8 * half, first + 8 * j, gate(sum_[i], sum_[kUp + i]), gate(sum_[i + 1], sum_[kUp + i + 1]));
      }
  }

  const Params& p_;
  Shared<S>& s_;
  const Work& work_;
  const int group_, lane_;
  const int row_;  // and row_ + 8
  float sum_[S::kSums];
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) multiply(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<Shared<S>*>(shared_memory);
  if (threadIdx.x == 0) {
    if ((shared_address(shared_memory) & 1023U) != 0) __trap();
    for (int i = 0; i < S::kStages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init(kConsumerWarps * kArrivingLanes);
    }
    fence_barrier_init();
  }
  __syncthreads();
  allow_successor();
  wait_for_predecessor();
  const Work work = work_of<S>(p);
  if (threadIdx.x >= 32 * kConsumerWarps) {
    if constexpr (S::kMovesRegisters) give_registers<40>();
    if (threadIdx.x == 32 * kConsumerWarps) produce<S>(p, shared, work);
  } else {
    if constexpr (S::kMovesRegisters) take_registers<232>();
    const int group = static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 128, 0));  // uniform
    Consumer<S> consumer(p, shared, work, group);
    consumer.run();
  }
}

template <class S>
cudaError_t start(const Params& p, bool dependent, cudaStream_t stream) {
  constexpr size_t kShared = sizeof(Shared<S>);
  static_assert(kShared * S::kBlocks <= 232448 - 1024 * (S::kBlocks - 1), "shared memory of a multiprocessor");
  static const cudaError_t prepared = allow_shared(multiply<S>, kShared);
  if (prepared != cudaSuccess) return prepared;
  return launch(multiply<S>, blocks_of(p), S::kThreads, kShared, 1, dependent, stream, p);
}

}  // namespace baton::cuda::gemm
