// Second kernel of the chunked form: walks the chunks of a head with the state in registers. A cluster of two blocks takes a head, each
// half of its values; warps 0 ... 3 of a block hold the state of 16 values each, warps 4 ... 7 norm, gate and store the rows and
// request records. What both blocks need of a record comes from L2 once: each requests a part of it for both.
//
// Everything is transposed, values on the M side: the accumulators of S^T (value g, keys 2 c, 2 c + 1) are, packed to BF16, the first
// operand of the products with W^T and q^T, and those of w^T the first operand of the products with Q^T and the rows k. So neither leaves
// the registers; the other operands are rows of the record, which a bulk copy brings in whole.
#pragma once

#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/matrix.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/kda/channel.cuh"
#include "ops/cuda/kda/chunk_tile.cuh"

namespace baton::cuda::kda {

inline constexpr int kScanThreads = 256;
inline constexpr int kScanStages = 2;

// Every thread hands a stage back itself where the race checker should see it; one a warp is enough otherwise.
#ifdef BATON_RACECHECK
inline constexpr int kArrivingLanes = 32;
#else
inline constexpr int kArrivingLanes = 1;
#endif

struct ScanStage {
  alignas(128) uint16_t w[kChunk][kDim];
  uint16_t q[kChunk][kDim];
  uint16_t ends[kChunk][kDim];
  uint16_t qk[kChunk][kChunk];
  uint16_t u[kChunk][kDim / 2];
  float decay[kDim];
  float r[kChunk];
  float s[kChunk];
};
struct ScanShared {
  ScanStage stage[kScanStages];
  float o[2][kChunk][kDim / 2 + 4];
  float squares[2][kChunk];  // of the peer's half of the values
  Barrier full[kScanStages], empty[kScanStages];
  Barrier o_full[2], o_empty[2];
  Barrier peer[2];
};
static_assert(sizeof(ScanShared) <= 227 * 1024, "one block an SM");

// Stores a float to the same place in the peer's shared memory; its barrier there counts four bytes.
__device__ __forceinline__ void store_to_peer(float* place, float v, Barrier& barrier, uint32_t peer) {
  asm volatile(
      "{\n .reg .b32 to, bar;\n"
      " mapa.shared::cluster.u32 to, %0, %2;\n"
      " mapa.shared::cluster.u32 bar, %1, %2;\n"
      " st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], %3, [bar];\n}" ::"r"(shared_address(place)),
      "r"(barrier.address()), "r"(peer), "r"(__float_as_uint(v))
      : "memory");
}

// State tile of a warp: 16 values, all keys; accumulators d of m16n8: [8 keys][value g: keys 2 c, + 1; value g + 8: likewise].
struct ScanState {
  float d[16][4];

  // rows: element (key 0, value 0 of the warp) of [kDim][kDim].
  template <class Element>
  __device__ __forceinline__ void load(const Element* rows, int g, int c) {
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int x = 0; x < 4; ++x) d[n][x] = static_cast<float>(rows[(8 * n + 2 * c + x % 2) * kDim + g + x / 2 * 8]);
  }
  template <class Element>
  __device__ __forceinline__ void store(Element* rows, int g, int c) const {
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int x = 0; x < 4; ++x) rows[(8 * n + 2 * c + x % 2) * kDim + g + x / 2 * 8] = static_cast<Element>(d[n][x]);
  }
};

// The lanes of a warp have read a stage, which both blocks of the cluster refill.
__device__ __forceinline__ void release_stage(Barrier& empty) {
  if (kArrivingLanes == 1) __syncwarp();
  if (threadIdx.x % 32 < kArrivingLanes) {
    empty.arrive();
    empty.arrive_remote(cluster_rank() ^ 1U);
  }
}

// Requests a record. The parts that both blocks read are split between them; each block's barrier counts all bytes that it receives.
__device__ __forceinline__ void request_record(const ChunkRecord& from, ScanStage& to, Barrier& full, int half) {
  constexpr uint16_t kBoth = 3;
  const uint64_t policy = policy_evict_first();
  full.expect(sizeof(ScanStage));
  if (half == 0)
    bulk_load_multicast(to.w, from.w, sizeof(to.w) + sizeof(to.q), full, kBoth, policy);
  else
    bulk_load_multicast(to.ends, from.ends, sizeof(to.ends) + sizeof(to.qk), full, kBoth, policy);
  bulk_load(to.u, from.u[half], sizeof(to.u), full);
  bulk_load(to.decay, from.decay, sizeof(to.decay) + sizeof(to.r) + sizeof(to.s), full);
}

// One chunk for the 16 values of a warp, from `value` on; n counts chunks of the launch.
__device__ __forceinline__ void scan_chunk(ScanState& state, ScanStage& stage, ScanShared& sh, int n, int value, int g, int c) {
  float wt[8][4] = {};  // (W S)^T: [8 tokens]
  float ot[8][4] = {};
#pragma unroll
  for (int s = 0; s < 8; ++s) {
    const uint32_t a0 = pack_bf16x2(state.d[2 * s][0], state.d[2 * s][1]);
    const uint32_t a1 = pack_bf16x2(state.d[2 * s][2], state.d[2 * s][3]);
    const uint32_t a2 = pack_bf16x2(state.d[2 * s + 1][0], state.d[2 * s + 1][1]);
    const uint32_t a3 = pack_bf16x2(state.d[2 * s + 1][2], state.d[2 * s + 1][3]);
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      uint32_t b[4];
      load_matrix_x4(tile_b<kDim * 2>(stage.w, 16 * t, 16 * s), b);
      mma_bf16(wt[2 * t], a0, a1, a2, a3, b[0], b[1]);
      mma_bf16(wt[2 * t + 1], a0, a1, a2, a3, b[2], b[3]);
      load_matrix_x4(tile_b<kDim * 2>(stage.q, 16 * t, 16 * s), b);
      mma_bf16(ot[2 * t], a0, a1, a2, a3, b[0], b[1]);
      mma_bf16(ot[2 * t + 1], a0, a1, a2, a3, b[2], b[3]);
    }
  }
  uint32_t a[4][4];  // w^T: [16 tokens]
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    uint32_t u[4];  // tokens 0 ... 7 of values 0 ... 7, tokens 8 ... 15 of the same, then values 8 ... 15
    load_matrix_transposed_x4(tile_k<kDim>(stage.u, 16 * t, value), u);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 r = *reinterpret_cast<const float2*>(&stage.r[16 * t + 8 * h + 2 * c]);
      const float(&x)[4] = wt[2 * t + h];
      a[t][2 * h] = pack_bf16x2(r.x * (bf16_low(u[h]) - x[0]), r.y * (bf16_high(u[h]) - x[1]));
      a[t][2 * h + 1] = pack_bf16x2(r.x * (bf16_low(u[2 + h]) - x[2]), r.y * (bf16_high(u[2 + h]) - x[3]));
    }
  }
#pragma unroll
  for (int m = 0; m < 16; ++m) {
    const float2 decay = *reinterpret_cast<const float2*>(&stage.decay[8 * m + 2 * c]);
    state.d[m][0] *= decay.x, state.d[m][1] *= decay.y, state.d[m][2] *= decay.x, state.d[m][3] *= decay.y;
  }
#pragma unroll
  for (int t = 0; t < 4; ++t) {  // 16 tokens j
#pragma unroll
    for (int i = t; i < 4; ++i) {
      uint32_t b[4];
      load_matrix_x4(tile_b<kChunk * 2>(stage.qk, 16 * i, 16 * t), b);
      mma_bf16(ot[2 * i], a[t][0], a[t][1], a[t][2], a[t][3], b[0], b[1]);
      mma_bf16(ot[2 * i + 1], a[t][0], a[t][1], a[t][2], a[t][3], b[2], b[3]);
    }
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      uint32_t b[4];
      load_matrix_transposed_x4(tile_k<kDim * 2>(stage.ends, 16 * t, 16 * m), b);
      mma_bf16(state.d[2 * m], a[t][0], a[t][1], a[t][2], a[t][3], b[0], b[1]);
      mma_bf16(state.d[2 * m + 1], a[t][0], a[t][1], a[t][2], a[t][3], b[2], b[3]);
    }
  }
  sh.o_empty[n % 2].wait(static_cast<uint32_t>(n / 2 + 1) & 1);
  auto& o = sh.o[n % 2];
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const int token = 8 * t + 2 * c;
    const float2 s = *reinterpret_cast<const float2*>(&stage.s[token]);
    o[token][value + g] = s.x * ot[t][0];
    o[token + 1][value + g] = s.y * ot[t][1];
    o[token][value + g + 8] = s.x * ot[t][2];
    o[token + 1][value + g + 8] = s.y * ot[t][3];
  }
  sh.o_full[n % 2].arrive();
}

// Norm, gate and store of a chunk's rows, 128 threads: eight a row, eight values each, four rows a thread. request_next() is called when
// the block's warps are done with the chunk.
template <class RequestNext>
__device__ __forceinline__ void finish_rows(const DecodeParams& p, const ChunkWork& w, ScanShared& sh, int buffer, uint32_t parity,
                                            int half, int thread, const RequestNext& request_next) {
  const int part = thread % 8;
  const int64_t column = w.head * kDim + half * (kDim / 2) + part * 8;
  const uint32_t peer = cluster_rank() ^ 1U;
  uint4 gate[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int t = thread / 8 + 16 * i;
    gate[i] = t < w.count ? *reinterpret_cast<const uint4*>(p.gate + (w.row + t) * p.gate_stride + column) : make_uint4(0, 0, 0, 0);
  }
  sh.o_full[buffer].wait(parity);
  request_next();
  float o[4][8];
  float sum[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int t = thread / 8 + 16 * i;
    *reinterpret_cast<float4*>(&o[i][0]) = *reinterpret_cast<const float4*>(&sh.o[buffer][t][8 * part]);
    *reinterpret_cast<float4*>(&o[i][4]) = *reinterpret_cast<const float4*>(&sh.o[buffer][t][8 * part + 4]);
    sum[i] = 0;
#pragma unroll
    for (int x = 0; x < 8; ++x) sum[i] += o[i][x] * o[i][x];
#pragma unroll
    for (int bit = 1; bit < 8; bit *= 2) sum[i] += __shfl_xor_sync(0xFFFFFFFFU, sum[i], bit);
    if (part == 0) store_to_peer(&sh.squares[buffer][t], sum[i], sh.peer[buffer], peer);
  }
  sh.o_empty[buffer].arrive();
  float weight[8];
  *reinterpret_cast<float4*>(&weight[0]) = __ldg(reinterpret_cast<const float4*>(p.o_norm + half * (kDim / 2) + part * 8));
  *reinterpret_cast<float4*>(&weight[4]) = __ldg(reinterpret_cast<const float4*>(p.o_norm + half * (kDim / 2) + part * 8 + 4));
  sh.peer[buffer].wait(parity);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int t = thread / 8 + 16 * i;
    const float other = sh.squares[buffer][t];
    // The same order in both blocks: values 0 ... 63, then 64 ... 127.
    const float square = half == 0 ? sum[i] + other : other + sum[i];
    const float r = rsqrtf(square * (1.0F / kDim) + p.norm_eps);
    const uint32_t z[4] = {gate[i].x, gate[i].y, gate[i].z, gate[i].w};
    uint32_t y[4];
#pragma unroll
    for (int x = 0; x < 4; ++x)
      y[x] = pack_bf16x2(o[i][2 * x] * r * weight[2 * x] * sigmoid(bf16_low(z[x])),
                         o[i][2 * x + 1] * r * weight[2 * x + 1] * sigmoid(bf16_high(z[x])));
    if (t < w.count) *reinterpret_cast<uint4*>(p.y + (w.row + t) * p.y_stride + column) = make_uint4(y[0], y[1], y[2], y[3]);
  }
}

__global__ void __launch_bounds__(kScanThreads, 1) chunk_scan(const __grid_constant__ ChunkParams params) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  auto& sh = *reinterpret_cast<ScanShared*>(shared_memory);
  const DecodeParams& p = params.base;
  const auto half = static_cast<int>(cluster_rank());
  const int unit = static_cast<int>(blockIdx.x) / 2;
  const int head = unit % p.heads;
  const int sequence = unit / p.heads;
  const ops::SequenceRows rows = p.sequences[sequence];
  const int chunks = sequence_chunks(rows);
  const int first = params.first_chunk;
  const int last = min(chunks, first + params.slab_chunks);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int c = thread % 4;
  if (thread == 0) {
    for (int i = 0; i < kScanStages; ++i) {
      sh.full[i].init(1);
      sh.empty[i].init(2 * 4 * kArrivingLanes);  // of both blocks
    }
    for (int i = 0; i < 2; ++i) {
      sh.o_full[i].init(128);
      sh.o_empty[i].init(128);
      sh.peer[i].init(1);
    }
    fence_barrier_init();
  }
  cluster_sync();
  allow_successor();
  wait_for_predecessor();
  if (first < last) {
    const auto record_of = [&](int chunk) -> const ChunkRecord& {
      return params.records[(static_cast<int64_t>(chunk - first) * p.sequence_count + sequence) * p.heads + head];
    };
    if (warp < 4) {
      std::byte* slot = p.slots + rows.slot * p.slot_stride;
      const int64_t at = int64_t{head} * kDim * kDim + half * (kDim / 2) + 16 * warp;
      float* carry = params.carry + int64_t{sequence} * p.heads * kDim * kDim + at;
      auto* exact = reinterpret_cast<float*>(slot + p.state_offset) + at;
      auto* rounded = reinterpret_cast<bf16x*>(slot + p.state_offset) + at;
      ScanState state;
      if (first > 0)
        state.load(carry, g, c);
      else if (p.state_bf16)
        state.load(rounded, g, c);
      else
        state.load(exact, g, c);
      for (int chunk = first; chunk < last; ++chunk) {
        const int n = chunk - first;
        const int i = n % kScanStages;
        const auto lap = static_cast<uint32_t>(n / kScanStages);
        sh.full[i].wait(lap & 1);
        scan_chunk(state, sh.stage[i], sh, n, 16 * warp, g, c);
        release_stage(sh.empty[i]);
      }
      if (last < chunks)
        state.store(carry, g, c);
      else if (p.state_bf16)
        state.store(rounded, g, c);
      else
        state.store(exact, g, c);
    } else {
      const int epilogue = thread - 128;
      const auto request = [&](int chunk) {
        const int i = (chunk - first) % kScanStages;
        request_record(record_of(chunk), sh.stage[i], sh.full[i], half);
      };
      if (epilogue == 0) {
        fence_async_global();
        for (int chunk = first; chunk < min(last, first + kScanStages); ++chunk) request(chunk);
      }
      for (int chunk = first; chunk < last; ++chunk) {
        const int n = chunk - first;
        if (epilogue == 0) sh.peer[n % 2].expect(kChunk * 4);
        ChunkWork w = chunk_work(rows, sequence, chunk);
        w.head = head;
        finish_rows(p, w, sh, n % 2, static_cast<uint32_t>(n / 2) & 1, half, epilogue, [&] {
          if (epilogue != 0 || chunk + kScanStages >= last) return;
          sh.empty[n % kScanStages].wait(static_cast<uint32_t>(n / kScanStages) & 1);
          request(chunk + kScanStages);
        });
      }
      // The window of what follows: the last three rows of q^ k^ v^ (a sequence here has more than eight).
      if (last == chunks && half == 0)
        for (int i = epilogue; i < 9 * (kDim / 8); i += 128) {
          const int row = i / (3 * (kDim / 8));
          const int part = i / (kDim / 8) % 3;
          const int64_t width = int64_t{p.heads} * kDim;
          const int64_t column = part * width + head * kDim + i % (kDim / 8) * 8;
          *reinterpret_cast<uint4*>(p.slots + rows.slot * p.slot_stride + p.window_offset + (row * 3 * width + column) * 2) =
              *reinterpret_cast<const uint4*>(p.inputs + (rows.row_begin + rows.row_count - 3 + row) * p.input_stride + column);
        }
    }
  }
  cluster_sync();  // neither block ends while the other may still store to it
}

}  // namespace baton::cuda::kda
