// Times stacks of layers of the indexer's choice in one captured graph, on pages laid out as the engine's.
#pragma once

#include "tests/gpu/harness.h"
#include "tests/gpu/indexer_check.cuh"

namespace baton::gpu_test {

// The pooled rows of all layers of all pages: 16 bytes a thread.
__global__ void fill_index_pages(std::byte* pages, int64_t page_count, int64_t stride, int64_t offset, int layers) {
  constexpr int kUnits = static_cast<int>(IndexerData::kPageBytes / 16);
  const int64_t units = page_count * layers * kUnits;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < units;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint32_t w[4];
    const int64_t unit = i % kUnits;
    for (int j = 0; j < 4; ++j) {
      const uint64_t at = static_cast<uint64_t>(i) * 4 + static_cast<uint64_t>(j);
      w[j] = __float_as_uint(exp2f(-8.0F + static_cast<float>(mix(at) % 3)));
      if (unit < 128) {
        w[j] = 0;
        for (int b = 0; b < 4; ++b) w[j] |= static_cast<uint32_t>(random_code(at * 4 + static_cast<uint64_t>(b))) << (8 * b);
      }
    }
    const int64_t page = i / kUnits / layers;
    const int64_t layer = i / kUnits % layers;
    *reinterpret_cast<uint4*>(pages + page * stride + offset + layer * IndexerData::kPageBytes + unit * 16) =
        make_uint4(w[0], w[1], w[2], w[3]);
  }
}

inline void time_indexer_shape(int32_t rows, int layers, int32_t context, int splits, std::FILE* json) {
  constexpr int32_t kRequestRows = 8;
  const int32_t requests = (rows + kRequestRows - 1) / kRequestRows;
  const int32_t table = (context + 63) / 64;
  const int64_t offset = int64_t{64} * 528 * layers;
  const int64_t stride = (offset + IndexerData::kPageBytes * layers + 255) / 256 * 256;
  DeviceArray<std::byte> pages(stride * requests * table);
  fill_index_pages<<<1056, 256>>>(pages.get(), int64_t{requests} * table, stride, offset, layers);
  CUDA_OK(cudaGetLastError());
  std::vector<int32_t> tables(static_cast<size_t>(requests * table)), row_sequence, positions;
  std::iota(tables.begin(), tables.end(), 0);
  for (size_t i = tables.size() - 1; i > 0; --i) std::swap(tables[i], tables[mix(i) % (i + 1)]);
  for (int32_t r = 0; r < rows; ++r) {
    row_sequence.push_back(r / kRequestRows);
    positions.push_back(context - kRequestRows + r % kRequestRows);
  }
  std::vector<bf16> queries(static_cast<size_t>(rows) * 32 * 128);
  for (size_t i = 0; i < queries.size(); ++i) queries[i] = __float2bfloat16(normal(i));
  std::vector<float> head_weights(static_cast<size_t>(rows) * 32);
  for (size_t i = 0; i < head_weights.size(); ++i) head_weights[i] = normal(i + (1ULL << 40));
  const DeviceArray<int32_t> d_tables(tables), d_row_sequence(row_sequence), d_positions(positions);
  const DeviceArray<bf16> q(queries);
  const DeviceArray<float> weights(head_weights);
  DeviceArray<int32_t> pools(int64_t{rows} * 512), counts(rows), tails(rows);
  ops::IndexerSelectParams p;
  p.batch.row_count = rows;
  p.batch.sequence_count = requests;
  p.batch.row_sequence = d_row_sequence.get();
  p.batch.positions = d_positions.get();
  p.batch.page_tables = d_tables.get();
  p.batch.page_table_stride = table;
  p.q = {q.get(), DType::kBF16, rows, 32 * 128, 32 * 128};
  p.weights = {weights.get(), DType::kF32, rows, 32, 32};
  p.heads = 32;
  p.pages = {pages.get(), stride};
  p.layout.dim = 128;
  p.layout.pool = 4;
  p.layout.dtype = DType::kF8E4M3;
  p.selection = {pools.get(), counts.get(), tails.get(), 512};
  auto config = indexer::configure(p, cuda::multiprocessors());
  if (splits > 0) config.splits = splits;
  DeviceArray<std::byte> workspace(config.workspace_bytes);
  const auto t = time_graph(
      [&](cudaStream_t stream) {
        for (int l = 0; l < layers; ++l) {
          ops::IndexerSelectParams layer = p;
          layer.layout.page_offset = offset + l * IndexerData::kPageBytes;
          CUDA_OK(indexer::select(layer, config, workspace.get(), true, stream));
        }
      },
      20, 3);
  const double us = t.median / layers;
  const double keys = static_cast<double>(context) / 4;
  const double bytes = keys * requests * 132;
  const double flops = keys * rows * 32 * 128 * 2;
  const double floor = std::max(bytes / 4.55e12, flops / 1.4e15) * 1e6;
  std::printf(
      "%5d rows, context %6d, %2d splits: %6.1f us a layer (%.1f-%.1f) = %.2f ms x11, %.2f TB/s of keys, %.0f TFLOP/s, %.0f %% of floor "
      "%.1f us\n",
      rows, context, config.splits, us, t.least / layers, t.largest / layers, us * 11e-3, bytes / us * 1e-6, flops / us * 1e-6,
      100 * floor / us, floor);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"op\":\"indexer_select\",\"rows\":%d,\"context\":%d,\"layers\":%d,\"splits\":%d,\"us\":%.2f,\"min_us\":%.2f,\"max_us\":"
                 "%.2f,\"bytes\":%.0f,"
                 "\"flops\":%.0f,\"floor_us\":%.2f}\n",
                 rows, context, layers, config.splits, us, t.least / layers, t.largest / layers, bytes, flops, floor);
}

inline int time_indexer(const TimeRequest& request) {
  for (const auto& shape : request.shapes) {
    const auto parts = shape_parts(shape);
    time_indexer_shape(static_cast<int32_t>(shape_number(parts, 0)), static_cast<int>(request.options.at("layers")),
                       static_cast<int32_t>(request.options.at("context")), static_cast<int>(shape_number(parts, 1)), request.json);
  }
  return 0;
}

}  // namespace baton::gpu_test
