// The rows that one head of one sequence consumes, brought to shared memory as they are: window, replay ring, inputs of this launch.
//
// They form one line of time: rows 0 ... 2 are the window, then `fold` rows of the ring, then `rows` inputs. Token t of the line (0 is the
// first ring row) is convolved from rows t ... t + 3. What precedes the inputs was written in an earlier cycle and is requested before the
// predecessor in the stream is waited for, with the weights of the head. Sixteen threads copy a row of a head (256 bytes); a copy an
// instruction and thread, in a fixed number of passes: short code and one memory latency for all of it.
#pragma once

#include "ops/cuda/device/async_copy.cuh"
#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/kda/decode_params.h"

namespace baton::cuda::kda {

using bf16x = __nv_bfloat16;

struct HeadWork {
  std::byte* slot = nullptr;
  int32_t head = 0;
  int32_t row_begin = 0;
  int32_t fold = 0;     // ring rows to commit first
  int32_t rows = 0;     // rows of this launch
  bool commit = false;  // of the rows: advance state and window (else record them in the ring)
};

__device__ __forceinline__ HeadWork find_work(const DecodeParams& p) {
  HeadWork w;
  const auto sequence = static_cast<int32_t>(blockIdx.x) / p.heads;
  w.head = static_cast<int32_t>(blockIdx.x) % p.heads;
  int32_t slot = 0;
  if (p.sequences != nullptr) {
    const ops::SequenceRows s = p.sequences[sequence];
    slot = s.slot;
    w.row_begin = s.row_begin;
    w.commit = s.verify == 0;
    w.rows = s.row_count;
    if (w.rows > kMaxTokens) {  // longer runs of rows are the chunk kernel's
      w.rows = 0;
      w.commit = false;
    }
  } else {
    slot = p.slot_ids[sequence];
  }
  if (slot < 0) {
    w.rows = 0;
    return w;
  }
  w.slot = p.slots + slot * p.slot_stride;
  if (p.fold_counts != nullptr)
    w.fold = p.fold_counts[sequence];
  else if (p.fold_count_offset >= 0)
    w.fold = *reinterpret_cast<const int32_t*>(w.slot + p.fold_count_offset);
  w.fold = min(max(w.fold, 0), p.ring_rows);
  return w;
}

// Brings what a later block of this launch will ask for into L2: with it a block waits for L2 only, and the stream from memory does not
// stop
// while blocks compute. At least 128 threads.
__device__ __forceinline__ void prefetch_later(const DecodeParams& p, int element_bytes) {
  const unsigned later = blockIdx.x + static_cast<unsigned>(p.prefetch_blocks);
  if (p.prefetch_blocks == 0 || later >= gridDim.x) return;
  const auto sequence = static_cast<int32_t>(later) / p.heads;
  const auto head = static_cast<int32_t>(later) % p.heads;
  const int32_t slot = p.sequences != nullptr ? p.sequences[sequence].slot : p.slot_ids[sequence];
  if (slot < 0) return;
  const std::byte* base = p.slots + slot * p.slot_stride;
  const auto thread = static_cast<int>(threadIdx.x);
  const int bytes = kDim * kDim * element_bytes;
  if (thread == 127) bulk_prefetch(base + p.state_offset + head * int64_t{bytes}, static_cast<uint32_t>(bytes));
  const int64_t part = int64_t{p.heads} * kDim * 2;
  const int64_t at = head * kDim * 2 + thread % 2 * 128;
  if (thread < 64) {
    const int row = thread / 2 % 8;
    if (row < p.ring_rows && (p.fold_counts != nullptr || p.fold_count_offset >= 0))
      prefetch_line(base + p.ring_offset + row * (4 * part + p.heads * 2) + thread / 16 * part + at);
  } else if (thread < 64 + 18) {
    prefetch_line(base + p.window_offset + (thread - 64) / 2 * part + at);
  }
}

struct alignas(16) StagedRows {
  bf16x q[3 + kMaxTokens][kDim];  // rows fold ... fold + 2 of the line, then the inputs: the fold needs no q
  bf16x k[3 + 2 * kMaxTokens][kDim];
  bf16x v[3 + 2 * kMaxTokens][kDim];
  bf16x a[2 * kMaxTokens][kDim];  // token t
};

// Small things that are staged as well.
struct StagedHead {
  float4 taps[3][2][kDim / 2];  // of the convolution: q, k, v; even channels, odd channels (a thread takes a pair)
  float bias[kDim];
  float norm[kDim];
  bf16x beta[2 * kMaxTokens][8];  // of token t: the update logits of eight heads
  bf16x gate[kMaxTokens][kDim];   // output-gate logits
};

template <int kThreads>
struct Stager {
  static constexpr int kRows = kThreads / 16;  // of a pass
  const DecodeParams& p;
  const HeadWork& work;
  StagedRows& staged;
  StagedHead& side;
  int chunk = static_cast<int>(threadIdx.x) % 16;
  int first = static_cast<int>(threadIdx.x) / 16;

  __device__ __forceinline__ int64_t width() const { return int64_t{p.heads} * kDim; }
  __device__ __forceinline__ int64_t ring_row_bytes() const { return (4 * width() + p.heads) * 2; }
  // Of this thread's chunk in row 0 of q^.
  __device__ __forceinline__ std::byte* window() const { return work.slot + p.window_offset + work.head * kDim * 2 + chunk * 16; }
  __device__ __forceinline__ std::byte* ring() const { return work.slot + p.ring_offset + work.head * kDim * 2 + chunk * 16; }
  // The update logits of this head and its neighbours, 16 bytes.
  __device__ __forceinline__ std::byte* ring_beta(int t) const {
    return work.slot + p.ring_offset + t * ring_row_bytes() + (4 * width() + work.head / 8 * 8) * 2;
  }

  __device__ __forceinline__ void request_history() const {
    const int64_t part = width() * 2;  // bytes between q^, k^, v^, a
    const std::byte* window_chunk = window();
    const std::byte* ring_chunk = ring();
    const auto row_of_line = [&](int r) { return r < 3 ? window_chunk + r * 3 * part : ring_chunk + (r - 3) * ring_row_bytes(); };
#pragma unroll
    for (int i = 0; i < 3 + kMaxTokens; i += kRows) {
      const int r = first + i;
      if (r < 3 + work.fold) {
        const std::byte* from = row_of_line(r);
        async_copy16(&staged.k[r][chunk * 8], from + part);
        async_copy16(&staged.v[r][chunk * 8], from + 2 * part);
      }
    }
    if (first < 3) async_copy16(&staged.q[first][chunk * 8], row_of_line(first + work.fold));
    if (first < work.fold) async_copy16(&staged.a[first][chunk * 8], ring_chunk + first * ring_row_bytes() + 3 * part);
    const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < 3 * kDim; i += kThreads) {
      const int at = thread + i;
      if (at < 3 * kDim)
        async_copy16(&side.taps[at / kDim][at % 2][at % kDim / 2], p.conv + (at / kDim * width() + work.head * kDim + at % kDim) * 4);
    }
    if (thread < 32)
      async_copy16(&side.bias[thread * 4], p.dt_bias + work.head * kDim + thread * 4);
    else if (thread < 64)
      async_copy16(&side.norm[thread % 32 * 4], p.o_norm + thread % 32 * 4);
    else if (thread < 64 + work.fold)
      async_copy16(side.beta[thread - 64], ring_beta(thread - 64));
  }
  // Of this thread's row and chunk. Named before the state is requested, or the address would wait for the state: loads share scoreboards.
  struct InputRow {
    const bf16x* q;
    const bf16x* gate;
  };
  __device__ __forceinline__ InputRow input_row() const {
    const int64_t row = work.row_begin + first;
    InputRow r{p.inputs + row * p.input_stride + work.head * kDim + chunk * 8, p.gate + row * p.gate_stride + work.head * kDim + chunk * 8};
    asm volatile("" : "+l"(r.q), "+l"(r.gate));
    return r;
  }
  __device__ __forceinline__ void request_inputs(const InputRow& row) const {
    if (first < work.rows) {
      const bf16x* from = row.q;
      async_copy16(&side.gate[first][chunk * 8], row.gate);
      async_copy16(&staged.q[3 + first][chunk * 8], from);
      async_copy16(&staged.k[3 + work.fold + first][chunk * 8], from + width());
      async_copy16(&staged.v[3 + work.fold + first][chunk * 8], from + 2 * width());
      async_copy16(&staged.a[work.fold + first][chunk * 8], from + 3 * width());
      if (chunk == 0) async_copy16(side.beta[work.fold + first], from + 4 * width() - work.head * kDim + work.head / 8 * 8);
    }
    async_commit();
  }
  // Ends with a barrier of the block.
  __device__ __forceinline__ void wait() const {
    async_wait<0>();
    __syncthreads();
  }
  // After wait(): what a later cycle reads. The inputs go to the ring bit for bit, or rows fold + rows ... of the line become the window.
  __device__ __forceinline__ void record() const {
    const auto copy = [](std::byte* to, const bf16x* from) { *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from); };
    const int64_t part = width() * 2;
    if (!work.commit && first < work.rows) {
      std::byte* to = ring() + first * ring_row_bytes();
      copy(to, &staged.q[3 + first][chunk * 8]);
      copy(to + part, &staged.k[3 + work.fold + first][chunk * 8]);
      copy(to + 2 * part, &staged.v[3 + work.fold + first][chunk * 8]);
      copy(to + 3 * part, &staged.a[work.fold + first][chunk * 8]);
      if (chunk == 0) reinterpret_cast<bf16x*>(ring_beta(first))[work.head % 8] = side.beta[work.fold + first][work.head % 8];
    }
    if (first < 3 && (work.commit || work.fold > 0)) {
      const int tokens = work.commit ? work.rows : 0;
      std::byte* to = window() + first * 3 * part;
      copy(to, &staged.q[tokens + first][chunk * 8]);
      copy(to + part, &staged.k[work.fold + tokens + first][chunk * 8]);
      copy(to + 2 * part, &staged.v[work.fold + tokens + first][chunk * 8]);
    }
  }
};

}  // namespace baton::cuda::kda
