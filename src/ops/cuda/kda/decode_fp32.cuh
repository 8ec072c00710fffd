// Fold and verify with FP32 state: the recurrence, token by token in a fixed order, on ordinary arithmetic. A row's result has the same
// bits
// whether it runs alone, among eight, as a verified row or in a fold; hence nothing here is a product of several tokens.
//
// One block of eight warps a head; warp w holds values 16 w ... 16 w + 15, lane 4 e + u keys 16 e ... 16 e + 15 of values 16 w + 4 u ... +
// 3
// in 64 registers, requested by the first instructions. Per token, with the state still undecayed:
//   read = sum (k d) S, out = sum (q d) S over the keys (16 in the thread, then over eight lanes);  delta = beta (v - read)
//   o = out + (q . k) delta;  S <- d S + k delta
// so that both sums finish together and a row whose state nobody needs skips the update.
#pragma once

#include "ops/cuda/device/async_copy.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/kda/channel.cuh"

namespace baton::cuda::kda {

inline constexpr int kFp32Threads = 256;

struct Fp32Shared {
  static constexpr int kPitch = kDim + 4 * (kDim / 16);  // 16 keys, 4 words of padding: the key groups of a warp hit different banks
  StagedRows staged;
  StagedHead side;
  alignas(16) float k[8][kPitch];
  float kd[8][kPitch];
  float qd[8][kPitch];
  float d[8][kPitch];
  float v[8][kDim];
  float o[8][kDim];
  float part[8][8];  // of a warp: sums of k k, q q, q k of its two tokens
  float qk[8];
  float beta[8];
};

__device__ __forceinline__ int padded_key(int k) { return k + 4 * (k / 16); }

// Threads 64 i ... take tokens 2 i and 2 i + 1 of the segment; a thread has two channels.
template <bool kOutput>
__device__ __forceinline__ void prepare_recurrence(const DecodeParams& p, const HeadWork& work, float rate, Fp32Shared& sh, int first,
                                                   int count) {
  const int thread = static_cast<int>(threadIdx.x);
  const int channel = thread % 64 * 2;
  const int group = thread / 64;
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int start = first + 2 * group;
  float2 k[2];
  float2 v[2];
  float2 q[2];
  float2 d[2];
  const DecayGate gate = DecayGate::of(p, rate, sh.side, channel);
  ConvLine line_k = ConvLine::from(&sh.staged.k[start][channel], sh.side.taps[1], channel);
  ConvLine line_v = ConvLine::from(&sh.staged.v[start][channel], sh.side.taps[2], channel);
  ConvLine line_q = ConvLine::from(&sh.staged.q[kOutput ? start - work.fold : 0][channel], sh.side.taps[0], channel);
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const bool real = 2 * group + t < count;
    k[t] = line_k.masked(real);
    v[t] = line_v.masked(real);
    q[t] = kOutput ? line_q.masked(real) : make_float2(0, 0);
    const float2 g = gate(&sh.staged.a[start + t][channel]);
    d[t] = make_float2(exp2_fast(g.x), exp2_fast(g.y));
  }
  float sums[8];
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    sums[t] = __fmaf_rn(k[t].y, k[t].y, __fmul_rn(k[t].x, k[t].x));
    sums[2 + t] = __fmaf_rn(q[t].y, q[t].y, __fmul_rn(q[t].x, q[t].x));
    sums[4 + t] = __fmaf_rn(q[t].y, k[t].y, __fmul_rn(q[t].x, k[t].x));
    sums[6 + t] = 0;
  }
  if constexpr (kOutput) {
    const float total = warp_sums(sums);
    if (sum_owner<8>(lane)) sh.part[warp][sum_index<8>(lane)] = total;
  } else {
    float kk[2] = {sums[0], sums[1]};
    const float total = warp_sums(kk);
    if (sum_owner<2>(lane)) sh.part[warp][sum_index<2>(lane)] = total;
  }
  if (thread < 8) sh.beta[thread] = thread < count ? sigmoid(__bfloat162float(sh.side.beta[first + thread][work.head % 8])) : 0.0F;
  __syncthreads();
  const auto total = [&](int kind, int t) { return __fadd_rn(sh.part[2 * group][2 * kind + t], sh.part[2 * group + 1][2 * kind + t]); };
  const int at = padded_key(channel);
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const int token = 2 * group + t;
    const float rk = rsqrtf(__fadd_rn(total(0, t), 1e-6F));
    const float2 unit = make_float2(__fmul_rn(k[t].x, rk), __fmul_rn(k[t].y, rk));
    *reinterpret_cast<float2*>(&sh.k[token][at]) = unit;
    *reinterpret_cast<float2*>(&sh.d[token][at]) = d[t];
    *reinterpret_cast<float2*>(&sh.kd[token][at]) = make_float2(__fmul_rn(unit.x, d[t].x), __fmul_rn(unit.y, d[t].y));
    *reinterpret_cast<float2*>(&sh.v[token][channel]) = v[t];
    if constexpr (kOutput) {
      const float rq = __fmul_rn(rsqrtf(__fadd_rn(total(1, t), 1e-6F)), 0.08838834764831845F);
      *reinterpret_cast<float2*>(&sh.qd[token][at]) =
          make_float2(__fmul_rn(__fmul_rn(q[t].x, rq), d[t].x), __fmul_rn(__fmul_rn(q[t].y, rq), d[t].y));
      if (channel == 0) sh.qk[token] = __fmul_rn(__fmul_rn(total(2, t), rq), rk);
    }
  }
}

template <bool kOutput>
__device__ __forceinline__ void recur(const DecodeParams& p, const HeadWork& work, float rate, Fp32Shared& sh, float (&s)[16][4], int first,
                                      int count, bool commit) {
  const int thread = static_cast<int>(threadIdx.x);
  const int value = thread / 32 * 16 + thread % 4 * 4;
  const int key = thread % 32 / 4 * (16 + 4);  // padded
  prepare_recurrence<kOutput>(p, work, rate, sh, first, count);
  __syncthreads();
#pragma unroll 1
  for (int t = 0; t < count; ++t) {
    float read[4] = {};
    float out[4] = {};
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const float4 kd4 = *reinterpret_cast<const float4*>(&sh.kd[t][key + i]);
      const float kd[4] = {kd4.x, kd4.y, kd4.z, kd4.w};
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int x = 0; x < 4; ++x) read[x] = __fmaf_rn(s[i + e][x], kd[e], read[x]);
      if constexpr (kOutput) {
        const float4 qd4 = *reinterpret_cast<const float4*>(&sh.qd[t][key + i]);
        const float qd[4] = {qd4.x, qd4.y, qd4.z, qd4.w};
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
          for (int x = 0; x < 4; ++x) out[x] = __fmaf_rn(s[i + e][x], qd[e], out[x]);
      }
    }
#pragma unroll
    for (int bit = 16; bit >= 4; bit /= 2) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        read[x] = __fadd_rn(read[x], __shfl_xor_sync(0xFFFFFFFFU, read[x], bit));
        if constexpr (kOutput) out[x] = __fadd_rn(out[x], __shfl_xor_sync(0xFFFFFFFFU, out[x], bit));
      }
    }
    const float4 v4 = *reinterpret_cast<const float4*>(&sh.v[t][value]);
    const float v[4] = {v4.x, v4.y, v4.z, v4.w};
    const float beta = sh.beta[t];
    float delta[4];
#pragma unroll
    for (int x = 0; x < 4; ++x) delta[x] = __fmul_rn(beta, __fsub_rn(v[x], read[x]));
    if constexpr (kOutput) {
      const float qk = sh.qk[t];
      if (thread % 32 < 4)
        *reinterpret_cast<float4*>(&sh.o[t][value]) = make_float4(__fmaf_rn(qk, delta[0], out[0]), __fmaf_rn(qk, delta[1], out[1]),
                                                                  __fmaf_rn(qk, delta[2], out[2]), __fmaf_rn(qk, delta[3], out[3]));
    }
    if (commit || t + 1 < count) {
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        const float4 k4 = *reinterpret_cast<const float4*>(&sh.k[t][key + i]);
        const float4 d4 = *reinterpret_cast<const float4*>(&sh.d[t][key + i]);
        const float k[4] = {k4.x, k4.y, k4.z, k4.w};
        const float d[4] = {d4.x, d4.y, d4.z, d4.w};
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
          for (int x = 0; x < 4; ++x) s[i + e][x] = __fmaf_rn(s[i + e][x], d[e], __fmul_rn(k[e], delta[x]));
      }
    }
  }
}

__global__ void __launch_bounds__(kFp32Threads, 2) decode_fp32(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  auto& sh = *reinterpret_cast<Fp32Shared*>(shared_memory);
  const HeadWork work = find_work(p);
  const float rate = decay_rate(p, work.head);
  allow_successor();
  if (work.fold + work.rows == 0) {
    wait_for_predecessor();
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const uint64_t once = policy_evict_first();
  std::byte* state =
      work.slot + p.state_offset + int64_t{work.head} * kDim * kDim * 4 + (lane / 4 * 16 * kDim + warp * 16 + lane % 4 * 4) * 4;
  const Stager<kFp32Threads> stager{p, work, sh.staged, sh.side};
  stager.request_history();
  prefetch_later(p, 4);
  const auto input = stager.input_row();
  float s[16][4];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const uint4 v = load_streaming(state + i * kDim * 4, once);
    s[i][0] = __uint_as_float(v.x), s[i][1] = __uint_as_float(v.y), s[i][2] = __uint_as_float(v.z), s[i][3] = __uint_as_float(v.w);
  }
  const auto store = [&] {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      store_streaming(state + i * kDim * 4,
                      make_uint4(__float_as_uint(s[i][0]), __float_as_uint(s[i][1]), __float_as_uint(s[i][2]), __float_as_uint(s[i][3])),
                      once);
  };
  wait_for_predecessor();
  stager.request_inputs(input);
  stager.wait();
  stager.record();

  if (work.fold > 0) {
    recur<false>(p, work, rate, sh, s, 0, work.fold, true);
    if (work.rows == 0 || !work.commit) store();
    __syncthreads();
  }
  if (work.rows == 0) return;
  recur<true>(p, work, rate, sh, s, work.fold, work.rows, work.commit);
  if (work.commit) store();
  __syncthreads();

  if (warp >= work.rows) return;
  const float4 weight = *reinterpret_cast<const float4*>(&sh.side.norm[4 * lane]);
  const float4 o = *reinterpret_cast<const float4*>(&sh.o[warp][4 * lane]);
  const float square = __fmaf_rn(o.w, o.w, __fmaf_rn(o.z, o.z, __fmaf_rn(o.y, o.y, __fmul_rn(o.x, o.x))));
  const float r = rsqrtf(__fmaf_rn(warp_sum(square), 1.0F / kDim, p.norm_eps));
  const uint2 gate = *reinterpret_cast<const uint2*>(&sh.side.gate[warp][4 * lane]);
  uint2 out;
  out.x = pack_bf16x2(o.x * r * weight.x * sigmoid(bf16_low(gate.x)), o.y * r * weight.y * sigmoid(bf16_high(gate.x)));
  out.y = pack_bf16x2(o.z * r * weight.z * sigmoid(bf16_low(gate.y)), o.w * r * weight.w * sigmoid(bf16_high(gate.y)));
  *reinterpret_cast<uint2*>(p.y + (work.row_begin + warp) * p.y_stride + work.head * kDim + 4 * lane) = out;
}

}  // namespace baton::cuda::kda
