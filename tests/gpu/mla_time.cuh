// Times stacks of sparse layers inside one captured graph, on pages that hold all layers side by side as the engine's do.
#pragma once

#include "ops/cuda/device/launch.cuh"
#include "tests/gpu/harness.h"
#include "tests/gpu/mla_check.cuh"

namespace baton::gpu_test {

// Random rows everywhere: 16 bytes a thread.
__global__ void fill_latent_pages(std::byte* pages, int64_t rows, bool fp8) {
  const int units = fp8 ? 33 : 64;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < rows * units;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint32_t w[4];
    for (int j = 0; j < 4; ++j) {
      const uint64_t at = static_cast<uint64_t>(i) * 4 + static_cast<uint64_t>(j);
      if (!fp8) {
        const __nv_bfloat162 x = __floats2bfloat162_rn(normal(2 * at), normal(2 * at + 1));
        w[j] = *reinterpret_cast<const uint32_t*>(&x);
      } else if (i % units == units - 1) {
        w[j] = __float_as_uint(exp2f(-8.0F + static_cast<float>(mix(at) % 3)));
      } else {
        w[j] = 0;
        for (int b = 0; b < 4; ++b) w[j] |= static_cast<uint32_t>(random_code(at * 4 + static_cast<uint64_t>(b))) << (8 * b);
      }
    }
    reinterpret_cast<uint4*>(pages)[i] = make_uint4(w[0], w[1], w[2], w[3]);
  }
}

// form: what the rows are and which kernel they take. "verify": eight of a request; "prompt": of one request, by the same kernel;
// "prefill": of one request, by the kernel for many rows.
inline void time_mla_shape(int32_t rows, DType dtype, int splits, const std::string& form, int layers, int32_t context, std::FILE* json) {
  const int32_t kRequestRows = form == "verify" ? 8 : rows;
  MlaCase c;
  c.dtype = dtype;
  const int32_t requests = (rows + kRequestRows - 1) / kRequestRows;
  const int32_t table = (context + 63) / 64;
  const int64_t layer_bytes = 64 * c.row_bytes();
  const int64_t stride = (layer_bytes * layers + 255) / 256 * 256;
  DeviceArray<std::byte> pages(stride * requests * table);
  fill_latent_pages<<<1056, 256>>>(pages.get(), pages.count() / c.row_bytes(), dtype == DType::kF8E4M3);
  CUDA_OK(cudaGetLastError());
  std::vector<int32_t> tables(static_cast<size_t>(requests * table));
  for (size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<int32_t>(i);
  for (size_t i = tables.size() - 1; i > 0; --i) std::swap(tables[i], tables[mix(i) % (i + 1)]);
  std::vector<int32_t> row_sequence, positions, counts, tails;
  for (int32_t r = 0; r < rows; ++r) {
    row_sequence.push_back(r / kRequestRows);
    positions.push_back(context - kRequestRows + r % kRequestRows);
    counts.push_back(std::min(c.capacity, (positions.back() + 1) / c.pool));
    tails.push_back((positions.back() + 1) / c.pool * c.pool);
  }
  const int kSets = form == "verify" ? 4 : 1;  // of selections and queries
  std::vector<DeviceArray<int32_t>> pools;
  std::vector<DeviceArray<bf16>> q;
  double tokens = 0;
  for (int s = 0; s < kSets; ++s) {
    std::vector<int32_t> chosen(static_cast<size_t>(rows) * static_cast<size_t>(c.capacity));
    parallel_for(rows, [&](int64_t r) {
      const int32_t closed = (positions[static_cast<size_t>(r)] + 1) / c.pool;
      int32_t* to = chosen.data() + r * c.capacity;
      // Every closed pool with the same probability, in order.
      int32_t left = counts[static_cast<size_t>(r)];
      for (int32_t i = 0; i < closed && left > 0; ++i)
        if (mix((static_cast<uint64_t>(s) << 48) + (static_cast<uint64_t>(r) << 24) + static_cast<uint64_t>(i)) %
                static_cast<uint64_t>(closed - i) <
            static_cast<uint64_t>(left)) {
          *to++ = i;
          --left;
        }
    });
    pools.emplace_back(chosen);
    std::vector<bf16> values(static_cast<size_t>(rows) * static_cast<size_t>(c.heads * c.kDim));
    parallel_for(rows, [&](int64_t r) {
      for (int64_t i = r * c.heads * c.kDim; i < (r + 1) * c.heads * c.kDim; ++i)
        values[static_cast<size_t>(i)] = __float2bfloat16(normal(static_cast<uint64_t>(i) + (static_cast<uint64_t>(s) << 40)));
    });
    q.emplace_back(values);
  }
  for (int32_t r = 0; r < rows; ++r)
    tokens += counts[static_cast<size_t>(r)] * c.pool + positions[static_cast<size_t>(r)] + 1 - tails[static_cast<size_t>(r)];
  const DeviceArray<int32_t> d_row_sequence(row_sequence), d_positions(positions), d_counts(counts), d_tails(tails), d_tables(tables);
  const int64_t width = c.heads * c.kDim;
  DeviceArray<bf16> out(rows * width);
  ops::MlaAttendParams p;
  p.batch.row_count = rows;
  p.batch.sequence_count = requests;
  p.batch.row_sequence = d_row_sequence.get();
  p.batch.positions = d_positions.get();
  p.batch.page_tables = d_tables.get();
  p.batch.page_table_stride = table;
  p.out = {out.get(), DType::kBF16, rows, width, width};
  p.q = p.out;
  p.heads = c.heads;
  p.scale = 0.0625F;
  p.pages = {pages.get(), stride};
  p.pool = c.pool;
  p.selection.pool_capacity = c.capacity;
  mla::Config config = splits > 0 ? mla::configure(p, splits) : mla::configure(p, cuda::multiprocessors(), form != "verify");
  config.prefill = form == "prefill";
  DeviceArray<std::byte> workspace(config.workspace_bytes);
  const auto t = time_graph(
      [&](cudaStream_t stream) {
        for (int l = 0; l < layers; ++l) {
          ops::MlaAttendParams layer = p;
          layer.layout = {c.kDim, l * layer_bytes, c.row_bytes(), dtype};
          layer.q.data = q[static_cast<size_t>(l % kSets)].get();
          layer.selection = {pools[static_cast<size_t>(l % kSets)].get(), d_counts.get(), d_tails.get(), c.capacity};
          CUDA_OK(mla::attend(layer, config, workspace.get(), true, stream));
        }
      },
      20, 3);
  const double us = t.median / layers;
  const double cache_bytes = tokens * static_cast<double>(c.row_bytes());
  const double row_bytes = 4.0 * rows * static_cast<double>(width);
  const double flops = tokens * static_cast<double>(width) * 4;
  const double floor = std::max(cache_bytes / 4.55e12 + row_bytes / 4.2e12, flops / 7.6e14) * 1e6;
  const char* name = dtype == DType::kF8E4M3 ? "fp8" : "bf16";
  std::printf(
      "%5d rows %-4s %s, context %6d, %2d splits: %7.1f us a layer (%.1f-%.1f) = %.2f ms x11, %.2f TB/s, %.0f TFLOP/s, %.0f %% of floor "
      "%.1f "
      "us\n",
      rows, name, form.c_str(), context, config.splits, us, t.least / layers, t.largest / layers, us * 11e-3,
      (cache_bytes + row_bytes) / us * 1e-6, flops / us * 1e-6, 100 * floor / us, floor);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"op\":\"mla_attend\",\"rows\":%d,\"rows_type\":\"%s\",\"form\":\"%s\",\"context\":%d,\"layers\":%d,\"splits\":%d,"
                 "\"us\":%.2f,\"min_us\":%.2f,"
                 "\"max_us\":%.2f,\"bytes\":%.0f,\"flops\":%.0f,\"floor_us\":%.2f}\n",
                 rows, name, form.c_str(), context, layers, config.splits, us, t.least / layers, t.largest / layers,
                 cache_bytes + row_bytes, flops, floor);
}

inline int time_mla(const TimeRequest& request) {
  for (const auto& shape : request.shapes) {
    const auto parts = shape_parts(shape);
    const bool bf16_rows = parts.size() > 1 && parts[1] == "bf16";
    const bool names_form = parts.size() > 2 && (parts[2] == "prompt" || parts[2] == "prefill");
    if (names_form && parts[2] == "prefill" && !bf16_rows) {
      std::fprintf(stderr, "%s: the prefill kernel takes bf16 rows\n", shape.c_str());
      return 2;
    }
    time_mla_shape(static_cast<int32_t>(shape_number(parts, 0)), bf16_rows ? DType::kBF16 : DType::kF8E4M3,
                   names_form ? 0 : static_cast<int>(shape_number(parts, 2)), names_form ? parts[2] : "verify",
                   static_cast<int>(request.options.at("layers")), static_cast<int32_t>(request.options.at("context")), request.json);
  }
  return 0;
}

}  // namespace baton::gpu_test
