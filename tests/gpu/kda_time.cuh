// Times a cycle's worth of KDA layers, each with its own slots and weights, inside one captured graph.
#pragma once

#include <cstdio>
#include <memory>

#include "tests/gpu/kda_check.cuh"

namespace baton::gpu_test {

// bench/gpu/ceilings: a copy, counting bytes read and written.
inline constexpr double kKdaCopyBytes = 4.2e12;

__global__ void fill_normal_bf16(bf16* out, int64_t n, uint64_t seed, float scale) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const float v = scale * normal(seed + static_cast<uint64_t>(i));
    out[i] = {static_cast<uint16_t>((__float_as_uint(v) + 0x8000U) >> 16)};
  }
}
__global__ void fill_normal_f32(float* out, int64_t n, uint64_t seed, float scale) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    out[i] = scale * normal(seed + static_cast<uint64_t>(i));
}
inline DeviceArray<bf16> random_rows(int64_t n, uint64_t seed) {
  DeviceArray<bf16> a(n);
  fill_normal_bf16<<<1056, 256>>>(a.get(), n, seed << 40, 1.0F);
  return a;
}
inline DeviceArray<float> random_floats(int64_t n, uint64_t seed, float scale) {
  DeviceArray<float> a(n);
  fill_normal_f32<<<1056, 256>>>(a.get(), n, seed << 40, scale);
  return a;
}

struct KdaStackWeights {
  DeviceArray<float> conv, a_log, dt_bias, o_norm;
  KdaStackWeights(int64_t heads, uint64_t seed)
      : conv(random_floats(3 * heads * kKdaDim * 4, seed * 4, 0.5F)), a_log(random_floats(heads, seed * 4 + 1, 0.5F)),
        dt_bias(random_floats(heads * kKdaDim, seed * 4 + 2, 1.0F)), o_norm(random_floats(kKdaDim, seed * 4 + 3, 1.0F)) {}
  void fill(kda::DecodeParams& d) const {
    d.conv = conv.get();
    d.a_log = a_log.get();
    d.dt_bias = dt_bias.get();
    d.o_norm = o_norm.get();
    d.norm_eps = 1e-5F;
    d.lower_bound_log2 = -5.0F * 1.4426950408889634F;
  }
};

// Slots hold the layers one after another, as the engine's do: states and windows first, then rings.
struct KdaStack {
  int64_t heads;
  int layers;
  int slots;
  DType state;
  int64_t slot_bytes = 0;
  std::vector<KdaLayout> layout;
  std::vector<KdaStackWeights> weights;
  DeviceArray<std::byte> pool;

  KdaStack(int64_t h, int layer_count, int slot_count, DType dtype) : heads(h), layers(layer_count), slots(slot_count), state(dtype) {
    const int64_t width = heads * kKdaDim;
    const auto take = [&](int64_t bytes) {
      const int64_t at = slot_bytes;
      slot_bytes = align_up_64(at + bytes);
      return at;
    };
    layout.resize(static_cast<size_t>(layers));
    for (auto& l : layout) {
      l.ring_rows = 8;
      l.state_offset = take(width * kKdaDim * dtype_bytes(dtype));
      l.window_offset = take(9 * width * 2);
    }
    for (auto& l : layout) l.ring_offset = take(8 * (4 * width + heads) * 2);
    slot_bytes = (slot_bytes + 255) / 256 * 256;
    pool = DeviceArray<std::byte>(slot_bytes * slots);
    if (dtype == DType::kBF16) {
      fill_normal_bf16<<<1056, 256>>>(reinterpret_cast<bf16*>(pool.get()), slot_bytes * slots / 2, 17, 0.3F);
    } else {  // floats everywhere, then BF16 over windows and rings
      fill_normal_f32<<<1056, 256>>>(reinterpret_cast<float*>(pool.get()), slot_bytes * slots / 4, 17, 0.3F);
      for (int s = 0; s < slots; ++s)
        for (const auto& l : layout) {
          std::byte* slot = pool.get() + s * slot_bytes;
          fill_normal_bf16<<<64, 256>>>(reinterpret_cast<bf16*>(slot + l.window_offset), 9 * width, static_cast<uint64_t>(s), 1.0F);
          fill_normal_bf16<<<64, 256>>>(reinterpret_cast<bf16*>(slot + l.ring_offset), 8 * (4 * width + heads), static_cast<uint64_t>(s),
                                        1.0F);
        }
    }
    for (int l = 0; l < layers; ++l) weights.emplace_back(heads, static_cast<uint64_t>(l) + 5);
    CUDA_OK(cudaDeviceSynchronize());
  }
  void fill(kda::DecodeParams& d, int layer) const {
    weights[static_cast<size_t>(layer)].fill(d);
    const KdaLayout& l = layout[static_cast<size_t>(layer)];
    d.heads = static_cast<int32_t>(heads);
    d.slots = pool.get();
    d.slot_stride = slot_bytes;
    d.state_offset = l.state_offset;
    d.window_offset = l.window_offset;
    d.ring_offset = l.ring_offset;
    d.ring_rows = l.ring_rows;
    d.state_bf16 = state == DType::kBF16;
    if (const char* ahead = std::getenv("KDA_PREFETCH")) d.prefetch_blocks = std::atoi(ahead);
  }
};

struct KdaTraffic {
  double slot = 0;  // state, window, ring
  double rows = 0;  // inputs, gate, y
};
inline KdaTraffic kda_traffic(const KdaStack& s, int rows, int fold) {
  const double width = static_cast<double>(s.heads * kKdaDim);
  const double state = width * kKdaDim * static_cast<double>(dtype_bytes(s.state));
  KdaTraffic t;
  t.slot = state * (fold > 0 ? 2 : 1) + 9 * width * 2 * (fold > 0 ? 2 : 1);
  if (fold > 0)
    t.slot += fold * (3 * width + static_cast<double>(s.heads)) * 2;  // k, v, a; the q of the last three rows stands for the window's
  t.slot += rows * (4 * width + static_cast<double>(s.heads)) * 2;
  t.rows = rows * (6 * width + static_cast<double>(s.heads)) * 2;
  return {t.slot * s.slots, t.rows * s.slots};
}

// mode: fused (fold and verify in one pass), apart (two launches), fold, verify.
inline void time_kda_decode(const KdaStack& stack, int rows, int fold, const std::string& mode, bool rows_in_memory, std::FILE* json) {
  const int64_t width = stack.heads * kKdaDim;
  const int64_t m = static_cast<int64_t>(stack.slots) * rows;
  std::vector<ops::SequenceRows> host;
  std::vector<int32_t> ids;
  for (int i = 0; i < stack.slots; ++i) {
    host.push_back({i * rows, rows, 1000, i, 1});
    ids.push_back(i);
  }
  const DeviceArray<ops::SequenceRows> sequences(host);
  const DeviceArray<int32_t> slot_ids(ids);
  const DeviceArray<int32_t> counts(std::vector<int32_t>(static_cast<size_t>(stack.slots), fold));
  // In a cycle the projection has just written the rows: they are in L2. With several sets they come from memory.
  const int sets = rows_in_memory ? 8 : 1;
  std::vector<DeviceArray<bf16>> inputs, gate, y;
  for (int s = 0; s < sets; ++s) {
    inputs.push_back(random_rows(m * (4 * width + stack.heads), static_cast<uint64_t>(s) * 3 + 100));
    gate.push_back(random_rows(m * width, static_cast<uint64_t>(s) * 3 + 101));
    y.push_back(random_rows(m * width, static_cast<uint64_t>(s) * 3 + 102));
  }
  const auto t = time_graph(
      [&](cudaStream_t stream) {
        for (int l = 0; l < stack.layers; ++l) {
          const auto set = static_cast<size_t>(l % sets);
          kda::DecodeParams d;
          stack.fill(d, l);
          d.sequence_count = stack.slots;
          d.inputs = reinterpret_cast<const __nv_bfloat16*>(inputs[set].get());
          d.input_stride = 4 * width + stack.heads;
          d.gate = reinterpret_cast<const __nv_bfloat16*>(gate[set].get());
          d.y = reinterpret_cast<__nv_bfloat16*>(y[set].get());
          d.gate_stride = d.y_stride = width;
          if (mode == "apart" || mode == "fold") {
            d.slot_ids = slot_ids.get();
            d.fold_counts = counts.get();
            CUDA_OK(kda::decode(d, true, stream));
          }
          d.fold_counts = mode == "fused" ? counts.get() : nullptr;
          d.sequences = sequences.get();
          if (mode != "fold") CUDA_OK(kda::decode(d, true, stream));
        }
      },
      15, 3);
  KdaTraffic bytes = kda_traffic(stack, mode == "fold" ? 0 : rows, mode == "verify" ? 0 : fold);
  const double counted = bytes.slot + (rows_in_memory ? bytes.rows : 0);
  const double us = t.median / stack.layers;
  const double floor = counted / kKdaCopyBytes * 1e6;
  std::printf(
      "decode %4d requests x %d rows, fold %d, %-6s %s state, rows from %-6s: %7.2f us a layer (%.2f-%.2f), %.3f ms x34, %.2f TB/s, %3.0f "
      "%% of floor %.1f us\n",
      stack.slots, rows, fold, mode.c_str(), stack.state == DType::kBF16 ? "bf16" : "fp32", rows_in_memory ? "memory" : "L2", us,
      t.least / stack.layers, t.largest / stack.layers, us * 34e-3, counted / us * 1e-6, 100 * floor / us, floor);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"op\":\"kda_decode\",\"requests\":%d,\"rows\":%d,\"fold\":%d,\"mode\":\"%s\",\"state\":\"%s\",\"rows_from\":\"%s\","
                 "\"us\":%.3f,\"min_us\":%.3f,"
                 "\"max_us\":%.3f,\"bytes\":%.0f,\"floor_us\":%.3f}\n",
                 stack.slots, rows, fold, mode.c_str(), stack.state == DType::kBF16 ? "bf16" : "fp32", rows_in_memory ? "memory" : "l2", us,
                 t.least / stack.layers, t.largest / stack.layers, counted, floor);
}

// Prefill of one sequence, rows from memory: two sets of rows, larger than L2 each.
inline void time_kda_chunk(int64_t heads, int layers, int64_t rows, DType state, int32_t slab, std::FILE* json) {
  const KdaStack stack(heads, layers, 1, state);
  const int64_t width = heads * kKdaDim;
  const DeviceArray<ops::SequenceRows> sequences(std::vector<ops::SequenceRows>{{0, static_cast<int32_t>(rows), 0, 0, 0}});
  std::vector<DeviceArray<bf16>> inputs, gate, y;
  for (uint64_t s = 0; s < 2; ++s) {
    inputs.push_back(random_rows(rows * (4 * width + heads), s * 3 + 200));
    gate.push_back(random_rows(rows * width, s * 3 + 201));
    y.push_back(random_rows(rows * width, s * 3 + 202));
  }
  DeviceArray<std::byte> workspace(kda::chunk_workspace_bytes(heads, 1, slab));
  const auto record = [&](int which) {
    return [&, which](cudaStream_t stream) {
      for (int l = 0; l < layers; ++l) {
        const auto set = static_cast<size_t>(l % 2);
        kda::ChunkForm form;
        stack.fill(form.base, l);
        form.base.sequences = sequences.get();
        form.base.sequence_count = 1;
        form.base.inputs = reinterpret_cast<const __nv_bfloat16*>(inputs[set].get());
        form.base.input_stride = 4 * width + heads;
        form.base.gate = reinterpret_cast<const __nv_bfloat16*>(gate[set].get());
        form.base.y = reinterpret_cast<__nv_bfloat16*>(y[set].get());
        form.base.gate_stride = form.base.y_stride = width;
        form.row_count = rows;
        form.first_lead = 0;
        form.slab_chunks = slab;
        form.workspace = workspace.get();
        form.kernels = which;
        CUDA_OK(kda::chunk(form, true, stream));
      }
    };
  };
  const auto all = time_graph(record(3), 5, 1);
  const auto prepare = time_graph(record(1), 5, 1);
  const auto scan = time_graph(record(2), 5, 1);
  const double w = static_cast<double>(width);
  const double bytes = static_cast<double>(rows) * (6 * w + static_cast<double>(heads)) * 2;
  const double records = static_cast<double>((rows + 63) / 64 * heads) * static_cast<double>(sizeof(kda::ChunkRecord));
  const double us = all.median / layers;
  const double floor = bytes / kKdaCopyBytes * 1e6;
  std::printf(
      "chunk %ld rows, %s state, slabs of %d: %.1f us a layer (%.1f-%.1f), %.2f ms x34, %.2f TB/s of rows, %.0f %% of floor %.1f us; "
      "prepare alone %.1f us, scan alone %.1f us, records %.0f MB\n",
      rows, state == DType::kBF16 ? "bf16" : "fp32", slab, us, all.least / layers, all.largest / layers, us * 34e-3, bytes / us * 1e-6,
      100 * floor / us, floor, prepare.median / layers, scan.median / layers, records * 1e-6);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"op\":\"kda_chunk\",\"rows\":%ld,\"state\":\"%s\",\"slab\":%d,\"us\":%.2f,\"prepare_us\":%.2f,\"scan_us\":%.2f,"
                 "\"bytes\":%.0f,\"floor_us\":%.2f}\n",
                 rows, state == DType::kBF16 ? "bf16" : "fp32", slab, us, prepare.median / layers, scan.median / layers, bytes, floor);
}

}  // namespace baton::gpu_test
