// The router against the CPU: choices agree except where scores are closer than the noise of the sums; weights follow the chosen scores.
#pragma once

#include <cstdio>

#include "ops/cuda/moe/launch.h"
#include "tests/gpu/moe_case.h"

namespace baton::gpu_test {

inline bool check_route(int64_t rows, int32_t experts, int32_t width, int32_t choices, bool ties) {
  std::vector<bf16> x(static_cast<size_t>(rows * width)), w(static_cast<size_t>(experts) * static_cast<size_t>(width));
  std::vector<float> bias(static_cast<size_t>(experts));
  for (size_t i = 0; i < x.size(); ++i) x[i] = to_bf16(normal(i + 5));
  for (size_t i = 0; i < w.size(); ++i) {
    const size_t e = i / static_cast<size_t>(width);
    w[i] = to_bf16(0.03F * normal((ties ? e / 2 : e) * static_cast<size_t>(width) + i % static_cast<size_t>(width) + (uint64_t{1} << 40)));
  }
  for (size_t e = 0; e < bias.size(); ++e) bias[e] = 0.1F * normal((ties ? e / 2 : e) + (uint64_t{1} << 50));
  const DeviceArray<bf16> d_x(x), d_w(w);
  const DeviceArray<float> d_bias(bias);
  DeviceArray<float> d_scores(rows * experts), d_weights(rows * choices);
  DeviceArray<int32_t> d_ids(rows * choices);
  d_scores.fill_bytes(0xFF);
  d_ids.fill_bytes(0xFF);
  cuda::moe::Route r;
  r.rows = rows;
  r.width = width;
  r.experts = experts;
  r.choices = choices;
  r.x = d_x.get();
  r.router = d_w.get();
  r.bias = d_bias.get();
  r.scaling = 2.5F;
  r.scores = d_scores.get();
  r.ids = d_ids.get();
  r.weights = d_weights.get();
  CUDA_OK(cuda::moe::route(r, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
  const auto scores = d_scores.host();
  const auto weights = d_weights.host();
  const auto ids = d_ids.host();
  std::vector<double> worst(static_cast<size_t>(rows));
  std::vector<int64_t> wrong(static_cast<size_t>(rows));
  parallel_for(rows, [&](int64_t row) {
    const auto at = static_cast<size_t>(row);
    const float* s = scores.data() + row * experts;
    for (int e = 0; e < experts; ++e) {
      double logit = 0;
      for (int k = 0; k < width; ++k)
        logit += static_cast<double>(to_float(x[static_cast<size_t>(row * width + k)])) *
                 static_cast<double>(to_float(w[static_cast<size_t>(e) * static_cast<size_t>(width) + static_cast<size_t>(k)]));
      const double error = std::fabs(1 / (1 + std::exp(-logit)) - s[e]);
      worst[at] = std::max(worst[at], error == error ? error : 1.0);
    }
    // The choice is exact given the device's own scores.
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return s[a] + bias[static_cast<size_t>(a)] > s[b] + bias[static_cast<size_t>(b)]; });
    double total = 0;
    for (int j = 0; j < choices; ++j) total += s[order[static_cast<size_t>(j)]];
    for (int j = 0; j < choices; ++j) {
      wrong[at] += ids[static_cast<size_t>(row * choices + j)] != order[static_cast<size_t>(j)];
      const double want = 2.5 * s[order[static_cast<size_t>(j)]] / total;
      wrong[at] += !(std::fabs(weights[static_cast<size_t>(row * choices + j)] - want) <= 1e-6 * want);
    }
  });
  const double error = rows > 0 ? *std::max_element(worst.begin(), worst.end()) : 0;
  const auto bad = std::accumulate(wrong.begin(), wrong.end(), int64_t{0});
  const bool ok = error < 1e-5 && bad == 0;
  std::printf("route %5ld x %d of %d%s        %s  largest error of a score %.1e, wrong choices %ld\n", rows, choices, experts,
              ties ? ", ties" : "", ok ? "ok  " : "FAIL", error, bad);
  return ok;
}

inline int check_routes(bool small) {
  int failed = 0;
  failed += !check_route(33, 64, 512, 4, true);
  if (!small) {
    failed += !check_route(0, 288, 4096, 8, false);
    failed += !check_route(1, 288, 4096, 8, false);
    failed += !check_route(250, 288, 4096, 8, true);
    failed += !check_route(2000, 288, 4096, 8, false);
  }
  return failed;
}

}  // namespace baton::gpu_test
