// Times stacks of layers, each with its own weights and routing, inside one captured graph: no weight is ever in the cache.
#pragma once

#include <cstdio>
#include <string>

#include "tests/gpu/harness.h"
#include "tests/gpu/moe_check.cuh"

namespace baton::gpu_test {

// Ceilings measured by bench/gpu/ceilings and the best public grouped GEMM; floors are taken against these.
inline constexpr double kStreamBytes = 4.55e12;
inline constexpr double kCopyBytes = 4.2e12;
inline constexpr double kFp8Flops = 1.358e15;

struct Stack {
  moe::Problem problem;
  int layers = 0;
  std::vector<DeviceWeights> weights;

  Stack(moe::Problem p, int count) : problem(p), layers(count) {
    for (int l = 0; l < layers; ++l) {
      DeviceWeights w;
      const int64_t bytes = p.experts_local * p.inner * p.width;
      for (auto* m : {&w.gate, &w.up, &w.down}) {
        *m = DeviceArray<uint8_t>(bytes);
        fill_codes<<<1056, 256>>>(reinterpret_cast<uint64_t*>(m->get()), bytes / 8,
                                  (static_cast<uint64_t>(l) << 44) + reinterpret_cast<uintptr_t>(m->get()));
      }
      for (auto* s : {&w.gate_scale, &w.up_scale, &w.down_scale}) {
        std::vector<float> scale(static_cast<size_t>(p.experts_local * (p.inner / 128) * (p.width / 128)));
        for (size_t i = 0; i < scale.size(); ++i) scale[i] = 1.6e-4F * (0.5F + unit(i + static_cast<uint64_t>(l)));
        *s = DeviceArray<float>(scale);
      }
      weights.push_back(std::move(w));
    }
    CUDA_OK(cudaDeviceSynchronize());
  }
};

inline void time_shape(const Stack& stack, int64_t rows, const std::string& routing, const std::string& variant, std::FILE* json) {
  MoeCase c{"time", stack.problem};
  c.problem.rows = rows;
  c.routing = routing;
  const auto& p = c.problem;
  const auto config = variant.empty() ? moe::configure(p) : moe::configure(p, static_cast<moe::Variant>(std::atoi(variant.c_str())));
  const bool prefill = rows > 4096;
  const int sets = prefill ? 2 : std::min(stack.layers, 16);  // of routings and rows
  std::vector<DeviceArray<int32_t>> ids;
  std::vector<DeviceArray<bf16>> x;
  double used_experts = 0;
  double local_rows = 0;
  for (int s = 0; s < sets; ++s) {
    c.seed = static_cast<uint64_t>(s) + 11;
    const auto host = make_routing(c);
    const auto plan = expected_plan(c, host);
    for (const auto n : plan.count) {
      used_experts += n > 0 ? 1.0 / sets : 0;
      local_rows += static_cast<double>(n) / sets;
    }
    ids.emplace_back(host);
    x.emplace_back(make_rows(c, c.seed));
  }
  const DeviceArray<float> weights(make_weights(c));
  DeviceArray<bf16> out(std::max<int64_t>(rows, 1) * p.width);
  DeviceArray<uint8_t> workspace(moe::workspace_layout(p, config).bytes);
  workspace.fill_bytes(0);
  const auto record = [&](bool dependent, int32_t phases, bool quantise, bool mlp, bool combine) {
    return [&, dependent, phases, quantise, mlp, combine](cudaStream_t stream) {
      for (int l = 0; l < stack.layers; ++l) {
        moe::ExpertPath path;
        path.problem = p;
        path.config = config;
        path.x = x[static_cast<size_t>(l % sets)].get();
        path.ids = ids[static_cast<size_t>(l % sets)].get();
        path.weights = weights.get();
        path.experts = stack.weights[static_cast<size_t>(l)].view(p.inner * p.width);
        path.limit = 10;
        path.shared = path.x;
        path.out = out.get();
        path.workspace = workspace.get();
        path.dependent_launch = dependent;
        path.phases = phases;
        CUDA_OK(moe::plan(path, stream));
        if (quantise) CUDA_OK(moe::quantise(path, stream));
        if (mlp) CUDA_OK(moe::mlp(path, stream));
        if (combine) CUDA_OK(moe::combine(path, stream));
      }
    };
  };
  const int replays = prefill ? 3 : 12;
  const double n = stack.layers;
  const auto all = time_graph(record(true, 3, true, true, true), replays);
  const auto burst = time_graph(record(true, 3, true, true, true), 3, 1, true);
  const auto burst_mlp = time_graph([&](cudaStream_t stream) { record(true, 3, true, true, false)(stream); }, 3, 1, true);
  const auto serial = time_graph(record(false, 3, true, true, true), replays);
  const auto planned = time_graph(record(true, 3, false, false, false), replays);
  const auto quantised = time_graph(record(true, 3, true, false, false), replays);
  // The MLP is timed behind plan and quantise: it reads the plan before it waits, so a kernel must stand between them.
  const auto both = time_graph(record(true, 3, true, true, false), replays);
  const auto gate_up = time_graph(record(true, 1, true, true, false), replays);
  const auto down = time_graph(record(true, 2, true, true, false), replays);
  const auto combined = time_graph(record(true, 3, false, false, true), replays);

  const double d = static_cast<double>(p.width);
  const double i = static_cast<double>(p.inner);
  const double m = static_cast<double>(rows);
  const double weight_bytes = used_experts * 3 * d * i * (1 + 4.0 / 16384);
  const double row_bytes = m * d * 2 + local_rows * (2 * d + 2 * i + 4 * d) + m * d * 4;  // x, its slots, h, y, shared and out
  const double flops = local_rows * 6 * d * i;
  const double floor_us = std::max(weight_bytes / kStreamBytes + row_bytes / kCopyBytes, flops / kFp8Flops) * 1e6;
  const double mlp_us = (both.median - quantised.median) / n;
  const double gu_us = (gate_up.median - quantised.median) / n;
  const double dn_us = (down.median - quantised.median) / n;
  std::printf(
      "%6ld rows %-8s local rows %6.0f, %4.1f experts: all %7.1f us a layer (%.1f-%.1f) = %.2f ms x42, %3.0f %% of floor %.1f us; serial "
      "launches %.1f\n",
      rows, routing.c_str(), local_rows, used_experts, all.median / n, all.least / n, all.largest / n, all.median / n * 42e-3,
      100 * floor_us / (all.median / n), floor_us, serial.median / n);
  std::printf(
      "        plan %.2f  quantise %.2f  mlp %.1f (%.2f TB/s, %.0f TFLOP/s)  gate-up alone %.1f (%.2f TB/s, %.0f TFLOP/s)  down alone %.1f "
      "(%.2f TB/s, %.0f TFLOP/s)  combine %.2f\n",
      planned.median / n, (quantised.median - planned.median) / n, mlp_us, weight_bytes / mlp_us * 1e-6, flops / mlp_us * 1e-6, gu_us,
      weight_bytes * 2 / 3 / gu_us * 1e-6, flops * 2 / 3 / gu_us * 1e-6, dn_us, weight_bytes / 3 / dn_us * 1e-6, flops / 3 / dn_us * 1e-6,
      (combined.median - planned.median) / n);
  std::printf("        after a rest: all %.1f us a layer (%.1f-%.1f), without combine %.1f\n", burst.median / n, burst.least / n,
              burst.largest / n, burst_mlp.median / n);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"op\":\"moe\",\"rows\":%ld,\"routing\":\"%s\",\"layers\":%d,\"local_rows\":%.1f,\"used_experts\":%.2f,\"all_us\":%.2f,"
                 "\"all_min_us\":%.2f,\"all_max_us\":%.2f,"
                 "\"serial_us\":%.2f,\"plan_us\":%.2f,\"quantise_us\":%.2f,\"mlp_us\":%.2f,\"gate_up_us\":%.2f,\"down_us\":%.2f,\"combine_"
                 "us\":%.2f,\"weight_bytes\":%.0f,\"flops\":%.0f,"
                 "\"floor_us\":%.2f,\"burst_us\":%.2f}\n",
                 rows, routing.c_str(), stack.layers, local_rows, used_experts, all.median / n, all.least / n, all.largest / n,
                 serial.median / n, planned.median / n, (quantised.median - planned.median) / n, mlp_us, gu_us, dn_us,
                 (combined.median - planned.median) / n, weight_bytes, flops, floor_us, burst.median / n);
}

inline void time_route(int64_t rows, std::FILE* json) {
  const int32_t experts = 288, width = 4096, choices = 8;
  const int sets = 16;
  std::vector<DeviceArray<bf16>> x, w;
  MoeCase c{"route", {rows, choices, experts, experts, width, 512}};
  for (int s = 0; s < sets; ++s) {
    x.emplace_back(make_rows(c, static_cast<uint64_t>(s)));
    c.problem.rows = experts;
    w.emplace_back(make_rows(c, static_cast<uint64_t>(s) + 50));
    c.problem.rows = rows;
  }
  const DeviceArray<float> bias(std::vector<float>(static_cast<size_t>(experts), 0.0F));
  DeviceArray<float> weights(rows * choices);
  DeviceArray<int32_t> ids(rows * choices);
  const auto t = time_graph(
      [&](cudaStream_t stream) {
        for (int s = 0; s < 3 * sets; ++s) {
          moe::Route r;
          r.rows = rows;
          r.width = width;
          r.experts = experts;
          r.choices = choices;
          r.x = x[static_cast<size_t>(s % sets)].get();
          r.router = w[static_cast<size_t>(s % sets)].get();
          r.bias = bias.get();
          r.ids = ids.get();
          r.weights = weights.get();
          CUDA_OK(moe::route(r, stream));
        }
      },
      10);
  const double us = t.median / (3 * sets);
  const double bytes = (static_cast<double>(rows) + experts) * width * 2;
  const double flops = 2.0 * static_cast<double>(rows) * experts * width;
  std::printf("route %5ld rows: %.2f us, %.2f TB/s, %.0f TFLOP/s\n", rows, us, bytes / us * 1e-6, flops / us * 1e-6);
  if (json != nullptr)
    std::fprintf(json, "{\"op\":\"route\",\"rows\":%ld,\"us\":%.2f,\"bytes\":%.0f,\"flops\":%.0f}\n", rows, us, bytes, flops);
}

inline int time_shapes(const TimeRequest& request) {
  const Stack stack({0, 8, 288, 72, 4096, 2048}, static_cast<int>(request.options.at("layers")));
  for (const auto& shape : request.shapes) {
    const auto parts = shape_parts(shape);
    if (parts.size() < 2) {
      std::fprintf(stderr, "%s: want ROWS:ROUTING[:VARIANT] or ROWS:route\n", shape.c_str());
      return 2;
    }
    if (parts[1] == "route") {
      time_route(shape_number(parts, 0), request.json);
      continue;
    }
    const std::string variant = parts.size() > 2 ? parts[2] : "";
    if (!variant.empty()) std::printf("variant %s: ", variant.c_str());
    time_shape(stack, shape_number(parts, 0), parts[1], variant, request.json);
  }
  return 0;
}

}  // namespace baton::gpu_test
