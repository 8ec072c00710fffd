// Fold and verify with BF16 state: both as one step of the chunked form over at most eight tokens, on tensor cores; the state is read once
// and, where something is committed, written once, rounded once.
//
// With tokens i, un-normalised k~ and q~, r_i and s_i the factors of their norms (s_i with dim^-1/2), G_i the sum of log2 decays up to i:
//   kk_ij = (k~_i 2^G_i) . (k~_j 2^-G_j),  qk_ij = (q~_i 2^G_i) . (k~_j 2^-G_j)          eight tokens: 2^(8 * 7.2) is far inside the range
//   w_i = r_i beta_i (v_i - r_i (S^T (k~_i 2^G_i) + sum_{j<i} kk_ij w_j)),  o_i = s_i (S^T (q~_i 2^G_i) + sum_{j<=i} qk_ij w_j)
//   S <- diag(2^G_last) S + sum_j (k~_j 2^(G_last - G_j)) w_j^T
// Operands of the products are split in two BF16 parts, so the only coarse rounding is that of the state itself.
//
// One block of four warps a head. Warp 2 a + h holds keys 64 a ... and values 64 h ... of the state in 64 registers, requested by its first
// instructions, in the fragment order of the first operand of mma m16n8k16, values on the M side: lane 4 g + c holds keys 16 s + 4 c + 0
// ... 3
// of values 64 h + 8 g + j, j = 0 ... 7. A permutation of k is free and one of m only renames rows, so the state is read and written 16
// bytes a lane. Columns of values are kept in place order (place()): place 64 h + 8 j + g.
#pragma once

#include "ops/cuda/device/async_copy.cuh"
#include "ops/cuda/device/matrix.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/kda/channel.cuh"
#include "ops/cuda/kda/decode_bf16_tile.cuh"

namespace baton::cuda::kda {

// Operands of tokens first ... first + count - 1 of the line; those from `count` on are zero. Threads 64 i ... take tokens 4 i ... 4 i +
// 3, a
// thread has two channels.
template <bool kOutput>
__device__ __forceinline__ void prepare_tokens(const DecodeParams& p, const HeadWork& work, Bf16Shared& sh, int first, int count) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int group = thread / 64;
  const int channel = thread % 64 * 2;
  const int start = first + 4 * group;
  const int mine = count - 4 * group;
  float2 g[4];
  {
    const DecayGate gate = DecayGate::of(p, sh.rate, sh.side, channel);
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const float2 d = gate(&sh.staged.a[start + t][channel]);
      sum.x += t < mine ? d.x : 0.0F;
      sum.y += t < mine ? d.y : 0.0F;
      g[t] = sum;
    }
    sh.group_decay[group][channel / 2] = sum;
  }
  __syncthreads();
  const float2 g0 = sh.group_decay[0][channel / 2];
  const float2 g1 = sh.group_decay[1][channel / 2];
  const float2 end = make_float2(exp2_fast(g0.x + g1.x), exp2_fast(g0.y + g1.y));
  if (group == 1) {
#pragma unroll
    for (int t = 0; t < 4; ++t) g[t].x += g0.x, g[t].y += g0.y;
  } else {
    const uint32_t high = pack_bf16x2(end.x, end.y);
    const uint32_t low = pack_bf16x2(end.x - bf16_low(high), end.y - bf16_high(high));
    *reinterpret_cast<uint2*>(&sh.end_decay[channel]) = make_uint2(__byte_perm(high, low, 0x5410), __byte_perm(high, low, 0x7632));
  }
  {
    float squares[4];
    ConvLine line = ConvLine::from(&sh.staged.k[start][channel], sh.side.taps[1], channel);
    float2 ends[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const float2 k = line.masked(t < mine);
      squares[t] = k.x * k.x + k.y * k.y;
      const int token = 4 * group + t;
      split(k.x * exp2_fast(g[t].x), k.y * exp2_fast(g[t].y), &sh.rows_hi[token][channel], &sh.rows_lo[token][channel]);
      const float2 down = make_float2(k.x * exp2_fast(-g[t].x), k.y * exp2_fast(-g[t].y));
      split(down.x, down.y, &sh.keys_hi[token][channel], &sh.keys_lo[token][channel]);
      ends[t] = make_float2(down.x * end.x, down.y * end.y);
    }
    const uint32_t high[4] = {pack_bf16x2(ends[0].x, ends[1].x), pack_bf16x2(ends[2].x, ends[3].x), pack_bf16x2(ends[0].y, ends[1].y),
                              pack_bf16x2(ends[2].y, ends[3].y)};
    *reinterpret_cast<uint4*>(sh.ends_hi[group].of[channel]) = make_uint4(high[0], high[1], high[2], high[3]);
    *reinterpret_cast<uint4*>(sh.ends_lo[group].of[channel]) =
        make_uint4(pack_bf16x2(ends[0].x - bf16_low(high[0]), ends[1].x - bf16_high(high[0])),
                   pack_bf16x2(ends[2].x - bf16_low(high[1]), ends[3].x - bf16_high(high[1])),
                   pack_bf16x2(ends[0].y - bf16_low(high[2]), ends[1].y - bf16_high(high[2])),
                   pack_bf16x2(ends[2].y - bf16_low(high[3]), ends[3].y - bf16_high(high[3])));
    const float total = warp_sums(squares);
    if (sum_owner<4>(lane)) sh.part_norm[warp][sum_index<4>(lane)] = total;
  }
  {
    ConvLine line = ConvLine::from(&sh.staged.v[start][channel], sh.side.taps[2], channel);
    float2 v[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) v[t] = line.masked(t < mine);
    *reinterpret_cast<float4*>(sh.v.half(place(channel), group)) = make_float4(v[0].x, v[1].x, v[2].x, v[3].x);
    *reinterpret_cast<float4*>(sh.v.half(place(channel + 1), group)) = make_float4(v[0].y, v[1].y, v[2].y, v[3].y);
  }
  if constexpr (kOutput) {
    float squares[4];
    ConvLine line = ConvLine::from(&sh.staged.q[start - work.fold][channel], sh.side.taps[0], channel);
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const float2 q = line.masked(t < mine);
      squares[t] = q.x * q.x + q.y * q.y;
      const int row = 8 + 4 * group + t;
      split(q.x * exp2_fast(g[t].x), q.y * exp2_fast(g[t].y), &sh.rows_hi[row][channel], &sh.rows_lo[row][channel]);
    }
    const float total = warp_sums(squares);
    if (sum_owner<4>(lane)) sh.part_norm[warp][4 + sum_index<4>(lane)] = total;
  }
  if (thread < 8) sh.r_beta[thread] = thread < count ? sigmoid(__bfloat162float(sh.side.beta[first + thread][work.head % 8])) : 0.0F;
}

// The first `count` floats of a row of eight.
__device__ __forceinline__ void load_row(float (&m)[8], const float (&row)[8], int count) {
  if (count > 0) *reinterpret_cast<float4*>(&m[0]) = *reinterpret_cast<const float4*>(&row[0]);
  if (count > 4) *reinterpret_cast<float4*>(&m[4]) = *reinterpret_cast<const float4*>(&row[4]);
}

// S <- diag(2^G_last) S + ends w^T. The decay is a product with a diagonal matrix: that takes fewer instructions than unpacking S.
__device__ __forceinline__ void commit_tile(const Bf16Shared& sh, StateTile& tile, int keys, int half, int g, int c) {
  uint32_t w[4][4];  // of values j, j + 1: high parts of both, low parts of both
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto* w0 = reinterpret_cast<const uint32_t*>(&sh.w[64 * half + 16 * i + g][2 * c]);
    const auto* w1 = reinterpret_cast<const uint32_t*>(&sh.w[64 * half + 16 * i + 8 + g][2 * c]);
    w[i][0] = w0[0], w[i][1] = w1[0], w[i][2] = w0[4], w[i][3] = w1[4];
  }
  const bool diagonal = c == g / 2;
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const int row = 64 * keys + 16 * s + 2 * q + 4 * (g / 2) + g % 2;
      const uint32_t end_hi = *reinterpret_cast<const uint32_t*>(&sh.ends_hi[c / 2].of[row][c % 2 * 2]);
      const uint32_t end_lo = *reinterpret_cast<const uint32_t*>(&sh.ends_lo[c / 2].of[row][c % 2 * 2]);
      const uint32_t decay = diagonal ? sh.end_decay[row] : 0U;
      const uint32_t decay_hi = g % 2 == 0 ? decay & 0xFFFFU : decay << 16;
      const uint32_t decay_lo = g % 2 == 0 ? decay >> 16 : decay & 0xFFFF0000U;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t& f0 = tile.f[s][i][2 * q];
        uint32_t& f1 = tile.f[s][i][2 * q + 1];
        float d[4] = {};
        mma_bf16_k8(d, f0, f1, decay_hi);
        mma_bf16_k8(d, f0, f1, decay_lo);
        mma_bf16(d, w[i][0], w[i][1], w[i][2], w[i][3], end_hi, end_hi);
        mma_bf16_k8(d, w[i][0], w[i][1], end_lo);
        f0 = pack_bf16x2(d[0], d[1]);
        f1 = pack_bf16x2(d[2], d[3]);
      }
    }
  }
}

// One segment of tokens. On entry the staged rows are visible; the caller separates segments with a barrier.
template <bool kOutput>
__device__ __forceinline__ void run_segment(const DecodeParams& p, const HeadWork& work, Bf16Shared& sh, StateTile& tile, int first,
                                            int count, bool commit) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int c = thread % 4;
  const int half = warp % 2;  // of the values
  const int keys = warp / 2;  // half of the keys
  prepare_tokens<kOutput>(p, work, sh, first, count);
  __syncthreads();

  // kk and qk over a quarter of the keys a warp, transposed: rows of the product are tokens j, both parts of k~ 2^-G at once.
#pragma unroll
  for (int kind = 0; kind < (kOutput ? 2 : 1); ++kind) {
    float m[4] = {};
    float n[4] = {};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int k = 32 * warp + 16 * s + 4 * c;
      const uint2 key_hi = *reinterpret_cast<const uint2*>(&sh.keys_hi[g][k]);
      const uint2 key_lo = *reinterpret_cast<const uint2*>(&sh.keys_lo[g][k]);
      const uint2 row_hi = *reinterpret_cast<const uint2*>(&sh.rows_hi[8 * kind + g][k]);
      const uint2 row_lo = *reinterpret_cast<const uint2*>(&sh.rows_lo[8 * kind + g][k]);
      mma_bf16(m, key_hi.x, key_lo.x, key_hi.y, key_lo.y, row_hi.x, row_hi.y);
      mma_bf16(n, key_hi.x, 0, key_hi.y, 0, row_lo.x, row_lo.y);
    }
    sh.part_matrix[warp][8 * kind + 2 * c][g] = m[0] + m[2] + n[0];
    sh.part_matrix[warp][8 * kind + 2 * c + 1][g] = m[1] + m[3] + n[1];
  }
  __syncthreads();  // the staged rows of a last segment are dead from here on

  // S^T rows, a table for each half of the keys.
#pragma unroll
  for (int i0 = 0; i0 < 4; i0 += 2) {
    float sum[kOutput ? 2 : 1][2][4] = {};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int k = 64 * keys + 16 * s + 4 * c;
#pragma unroll
      for (int kind = 0; kind < (kOutput ? 2 : 1); ++kind) {
        const uint2 high = *reinterpret_cast<const uint2*>(&sh.rows_hi[8 * kind + g][k]);
        const uint2 low = *reinterpret_cast<const uint2*>(&sh.rows_lo[8 * kind + g][k]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t(&f)[4] = tile.f[s][i0 + i];
          mma_bf16(sum[kind][i], f[0], f[1], f[2], f[3], high.x, high.y);
          mma_bf16(sum[kind][i], f[0], f[1], f[2], f[3], low.x, low.y);
        }
      }
    }
#pragma unroll
    for (int kind = 0; kind < (kOutput ? 2 : 1); ++kind) {
      TokenTable& table = kind == 0 ? sh.read_k[keys] : sh.read_q[keys];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 64 * half + 16 * (i0 + i) + g;
        *reinterpret_cast<float2*>(table.pair(row, c)) = make_float2(sum[kind][i][0], sum[kind][i][1]);
        *reinterpret_cast<float2*>(table.pair(row + 8, c)) = make_float2(sum[kind][i][2], sum[kind][i][3]);
      }
    }
  }
  if (kOutput || thread < 64) {
    const int row = thread / 8;
    const int col = thread % 8;
    sh.matrix[row][col] =
        (sh.part_matrix[0][row][col] + sh.part_matrix[1][row][col]) + (sh.part_matrix[2][row][col] + sh.part_matrix[3][row][col]);
  }
  if (thread < (kOutput ? 16 : 8)) {
    const int group = thread % 8 / 4;
    const int at = thread / 8 * 4 + thread % 4;
    const float r = rsqrtf(sh.part_norm[2 * group][at] + sh.part_norm[2 * group + 1][at] + 1e-6F);
    sh.r[thread] = r * (thread < 8 ? 1.0F : 0.08838834764831845F);
    if (thread < 8) sh.r_beta[thread] *= r;
  }
  __syncthreads();

  {  // corrected values, one column a thread
    float w[8];
    float v[8];
    float a[8];
    float b[8];
    sh.v.read(v, thread);
    sh.read_k[0].read(a, thread);
    sh.read_k[1].read(b, thread);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float m[8];
      load_row(m, sh.matrix[i], i);
      float read = a[i] + b[i];
#pragma unroll
      for (int j = 0; j < i; ++j) read += m[j] * w[j];
      w[i] = sh.r_beta[i] * (v[i] - sh.r[i] * read);
    }
    if constexpr (kOutput) {
      const int value = (thread & 64) + (thread % 8) * 8 + thread % 64 / 8;  // of this place
      sh.read_q[0].read(a, thread);
      sh.read_q[1].read(b, thread);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float m[8];
        load_row(m, sh.matrix[8 + i], i + 1);
        float o = a[i] + b[i];
#pragma unroll
        for (int j = 0; j <= i; ++j) o += m[j] * w[j];
        sh.o[i][value] = o * sh.r[8 + i];
      }
    }
    if (commit) {
      uint32_t high[4];
      uint32_t low[4];
#pragma unroll
      for (int t = 0; t < 8; t += 2) {
        high[t / 2] = pack_bf16x2(w[t], w[t + 1]);
        low[t / 2] = pack_bf16x2(w[t] - bf16_low(high[t / 2]), w[t + 1] - bf16_high(high[t / 2]));
      }
      *reinterpret_cast<uint4*>(&sh.w[thread][0]) = make_uint4(high[0], high[1], high[2], high[3]);
      *reinterpret_cast<uint4*>(&sh.w[thread][8]) = make_uint4(low[0], low[1], low[2], low[3]);
    }
  }
  __syncthreads();
  if (commit) commit_tile(sh, tile, keys, half, g, c);
}

template <int kBlocks>
__global__ void __launch_bounds__(kBf16Threads, kBlocks) decode_bf16(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  auto& sh = *reinterpret_cast<Bf16Shared*>(shared_memory);
  allow_successor();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const uint64_t once = policy_evict_first();
  std::byte* state = nullptr;
  uint4 rows[4][4];
  {
    const HeadWork work = find_work(p);
    if (work.fold + work.rows == 0) {
      wait_for_predecessor();
      return;
    }
    const Stager<kBf16Threads> stager{p, work, sh.staged, sh.side};
    stager.request_history();
    prefetch_later(p, 2);
    const auto input = stager.input_row();
    // Of this thread: its first 16 bytes.
    state = work.slot + p.state_offset + int64_t{work.head} * kDim * kDim * 2 +
            ((64 * (warp / 2) + 4 * (thread % 4)) * kDim + 64 * (warp % 2) + 8 * (thread % 32 / 4)) * 2;
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int row = 0; row < 4; ++row) rows[s][row] = load_streaming(state + (16 * s + row) * kDim * 2, once);
    if (thread == 0) {
      sh.work = work;
      sh.rate = decay_rate(p, work.head);
    }
    wait_for_predecessor();
    stager.request_inputs(input);
    stager.wait();
    stager.record();
  }
  const HeadWork& work = sh.work;
  StateTile tile;
  tile.set(rows);
  if (work.fold > 0) {
    run_segment<false>(p, work, sh, tile, 0, work.fold, true);
    if (work.rows == 0 || !work.commit) tile.store(state, once);
    __syncthreads();
  }
  if (work.rows == 0) return;
  run_segment<true>(p, work, sh, tile, work.fold, work.rows, work.commit);
  if (work.commit) tile.store(state, once);

  const int lane = thread % 32;
  const float4 weight = *reinterpret_cast<const float4*>(&sh.side.norm[4 * lane]);
  float4 o[2];
  float square[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    o[i] = *reinterpret_cast<const float4*>(&sh.o[2 * warp + i][4 * lane]);
    square[i] = o[i].x * o[i].x + o[i].y * o[i].y + o[i].z * o[i].z + o[i].w * o[i].w;
  }
  const float sum = warp_sums(square);  // lanes 0 ... 15 that of the first row, the others that of the second
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float r = rsqrtf(__shfl_sync(0xFFFFFFFFU, sum, 16 * i) * (1.0F / kDim) + p.norm_eps);
    const uint2 gate = *reinterpret_cast<const uint2*>(&sh.side.gate[2 * warp + i][4 * lane]);
    uint2 out;
    out.x = pack_bf16x2(o[i].x * r * weight.x * sigmoid(bf16_low(gate.x)), o[i].y * r * weight.y * sigmoid(bf16_high(gate.x)));
    out.y = pack_bf16x2(o[i].z * r * weight.z * sigmoid(bf16_low(gate.y)), o[i].w * r * weight.w * sigmoid(bf16_high(gate.y)));
    const int t = 2 * warp + i;
    if (t < work.rows) *reinterpret_cast<uint2*>(p.y + (work.row_begin + t) * p.y_stride + work.head * kDim + 4 * lane) = out;
  }
}

}  // namespace baton::cuda::kda
