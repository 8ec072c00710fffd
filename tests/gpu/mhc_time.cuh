// Times a pass over all sites, each with its own fn, in one captured graph.
#pragma once

#include "tests/gpu/harness.h"
#include "tests/gpu/mhc_check.cuh"

namespace baton::gpu_test {

// sets: copies of the streams that sites take in turn; 1 as in the engine, where they stay in L2 while nothing else runs.
inline void time_mhc_shape(int64_t rows, int sites, int sets, std::FILE* json) {
  MhcCase c{"time", rows};
  const MhcData d(c);
  std::vector<DeviceArray<bf16>> streams, fn;
  for (int i = 0; i < sets; ++i) streams.emplace_back(d.streams);
  for (int i = 0; i < sites; ++i) fn.emplace_back(d.fn);
  DeviceArray<bf16> y(d.y), x(rows * mhc::kWidth);
  DeviceArray<float> post(d.post), comb(d.comb), base(d.base), scale(d.scale), weight(d.weight), code_scales(rows * (mhc::kWidth / 128));
  DeviceArray<uint8_t> codes(rows * mhc::kWidth);
  const auto view = [&](auto& a, DType t, int64_t cols) { return MatrixView{a.get(), t, rows, cols, cols}; };
  const auto t = time_graph(
      [&](cudaStream_t stream) {
        for (int i = 0; i < sites; ++i) {
          ops::MhcMixParams p;
          p.streams = view(streams[static_cast<size_t>(i % sets)], DType::kBF16, MhcData::kWide);
          p.y = view(y, DType::kBF16, mhc::kWidth);
          p.from = {view(post, DType::kF32, mhc::kStreams), view(comb, DType::kF32, 16)};
          p.to = p.from;
          p.stream_count = mhc::kStreams;
          p.fn = {fn[static_cast<size_t>(i)].get(), nullptr, DType::kBF16, mhc::kMix, MhcData::kWide};
          p.base = base.get();
          p.scale = scale.get();
          p.norm_weight = weight.get();
          p.norm_eps = 1e-5F;
          p.hc_eps = 1e-6F;
          p.sinkhorn_iterations = 20;
          p.x = view(x, DType::kBF16, mhc::kWidth);
          CUDA_OK(mhc::mix(p, {codes.get(), code_scales.get()}, true, stream));
        }
      },
      20, 3);
  const double us = t.median / sites;
  const double bytes =
      static_cast<double>(rows) * (2 * 2 * MhcData::kWide + 2 * 2 * mhc::kWidth + mhc::kWidth) + 2.0 * mhc::kMix * MhcData::kWide;
  const double floor = bytes / 4.2e12 * 1e6;
  std::printf(
      "%5ld rows, %2d sets of streams: %6.2f us a site (%.2f-%.2f) = %.2f ms x90, %.2f TB/s, %.0f %% of the floor of memory %.2f us\n",
      rows, sets, us, t.least / sites, t.largest / sites, us * 90e-3, bytes / us * 1e-6, 100 * floor / us, floor);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"op\":\"mhc_mix\",\"rows\":%ld,\"sites\":%d,\"sets\":%d,\"us\":%.3f,\"min_us\":%.3f,\"max_us\":%.3f,\"bytes\":%.0f,"
                 "\"floor_us\":%.3f}\n",
                 rows, sites, sets, us, t.least / sites, t.largest / sites, bytes, floor);
}

inline int time_mhc(const TimeRequest& request) {
  for (const auto& shape : request.shapes) {
    const auto parts = shape_parts(shape);
    time_mhc_shape(shape_number(parts, 0), static_cast<int>(request.options.at("sites")), static_cast<int>(shape_number(parts, 1, 1)),
                   request.json);
  }
  return 0;
}

}  // namespace baton::gpu_test
