// Runs one case of the expert path on the device and compares every stage with the CPU.
#pragma once

#include <cstring>

#include "ops/cuda/moe/launch.h"
#include "ops/cuda/moe/layout.h"
#include "tests/gpu/moe_case.h"

namespace baton::gpu_test {

namespace moe = cuda::moe;

struct HostWeights {
  std::vector<uint8_t> gate, up, down;  // row-major
  std::vector<float> gate_scale, up_scale, down_scale;
};

struct DeviceWeights {
  DeviceArray<uint8_t> gate, up, down;
  DeviceArray<float> gate_scale, up_scale, down_scale;

  moe::ExpertWeights view(int64_t expert_bytes) const {
    moe::ExpertWeights w;
    w.gate = gate.get();
    w.up = up.get();
    w.down = down.get();
    w.gate_stride = w.up_stride = w.down_stride = expert_bytes;
    w.gate_scale = gate_scale.get();
    w.up_scale = up_scale.get();
    w.down_scale = down_scale.get();
    return w;
  }
};

inline HostWeights random_weights(const MoeCase& c) {
  const auto& p = c.problem;
  HostWeights w;
  const int64_t bytes = p.experts_local * p.inner * p.width;
  int salt = 0;
  for (auto* matrix : {&w.gate, &w.up, &w.down}) {
    matrix->resize(static_cast<size_t>(bytes));
    const uint64_t base = c.seed * 977 + (static_cast<uint64_t>(++salt) << 40);
    const int64_t part = 1 << 16;
    parallel_for((bytes + part - 1) / part, [&](int64_t t) {
      for (int64_t i = t * part; i < std::min(bytes, (t + 1) * part); ++i)
        (*matrix)[static_cast<size_t>(i)] = random_code(base + static_cast<uint64_t>(i));
    });
  }
  for (auto* scale : {&w.gate_scale, &w.up_scale, &w.down_scale}) {
    scale->resize(static_cast<size_t>(p.experts_local * (p.inner / 128) * (p.width / 128)));
    for (size_t i = 0; i < scale->size(); ++i)
      (*scale)[i] = 1.6e-4F * (0.5F + unit(c.seed * 13 + i + (static_cast<uint64_t>(++salt) << 33)));
  }
  return w;
}

inline DeviceWeights upload(const MoeCase& c, const HostWeights& h) {
  const auto& p = c.problem;
  DeviceWeights d;
  const auto pack = [&](const std::vector<uint8_t>& rows, int64_t n, int64_t k, bool permute) {
    const DeviceArray<uint8_t> plain(rows);
    DeviceArray<uint8_t> packed(static_cast<int64_t>(rows.size()));
    packed.fill_bytes(0x7F);
    // Experts are stacked along n: n is a multiple of 128, so their blocks do not mix.
    CUDA_OK(moe::pack_weight(packed.get(), plain.get(), n * p.experts_local, k, permute, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    return packed;
  };
  d.gate = pack(h.gate, p.inner, p.width, true);
  d.up = pack(h.up, p.inner, p.width, true);
  d.down = pack(h.down, p.width, p.inner, false);
  d.gate_scale = DeviceArray<float>(h.gate_scale);
  d.up_scale = DeviceArray<float>(h.up_scale);
  d.down_scale = DeviceArray<float>(h.down_scale);
  return d;
}

struct CheckResult {
  bool ok = true;
  double h_error = 0;        // relative L2 of dequantised h against double
  double h_scale_error = 0;  // largest relative error of a scale of h
  double h_step = 0;         // share of codes that differ from the rounded reference
  double y_error = 0;        // relative L2 of y against double on the device's own h
  std::string failures;
  void expect(bool condition, const std::string& what) {
    if (!condition) failures += (failures.empty() ? "" : "; ") + what;
    ok = ok && condition;
  }
};

inline CheckResult check_case(const MoeCase& c, int max_slots) {
  const auto& p = c.problem;
  CheckResult result;
  result.expect(moe::supported(p), "supported()");
  const auto ids = make_routing(c);
  const auto weights = make_weights(c);
  const auto x = make_rows(c, c.seed);
  const auto shared = make_rows(c, c.seed + 99);
  const HostWeights host = random_weights(c);
  const DeviceWeights device = upload(c, host);
  const DeviceArray<int32_t> d_ids(ids);
  const DeviceArray<float> d_weights(weights);
  const DeviceArray<bf16> d_x(x);
  const DeviceArray<bf16> d_shared(shared);
  DeviceArray<bf16> d_out(p.rows * p.width);

  moe::ExpertPath path;
  path.problem = p;
  path.config = c.variant < 0 ? moe::configure(p) : moe::configure(p, static_cast<moe::Variant>(c.variant));
  path.first_expert = c.first_expert;
  path.x = d_x.get();
  path.ids = d_ids.get();
  path.weights = d_weights.get();
  path.experts = device.view(p.inner * p.width);
  path.limit = c.limit;
  path.shared = c.shared ? d_shared.get() : nullptr;
  path.out = d_out.get();
  const auto layout = moe::workspace_layout(p, path.config);
  DeviceArray<uint8_t> workspace(layout.bytes);
  path.workspace = workspace.get();

  std::vector<uint8_t> memory[2];
  std::vector<bf16> out[2];
  for (int run = 0; run < 2; ++run) {
    workspace.fill_bytes(run == 0 ? 0xFF : 0x5A);  // poison: what nobody writes must not matter
    d_out.fill_bytes(0xFF);
    CUDA_OK(moe::run(path, nullptr));
    CUDA_OK(cudaGetLastError());
    CUDA_OK(cudaDeviceSynchronize());
    memory[run] = workspace.host();
    out[run] = d_out.host();
  }
  const auto* base = memory[0].data();
  const auto slots = path.config.slots;
  const auto panel_byte = [&](int64_t offset, int64_t slot, int64_t byte) {  // byte of a slot, counted over its panels of 128 bytes
    return base + offset + moe::panel_offset(slots, byte / 128, slot, static_cast<int>(byte % 128 / 16)) + byte % 16;
  };
  const auto floats = [&](int64_t offset) { return reinterpret_cast<const float*>(base + offset); };

  // Plan: exact.
  const ExpectedPlan plan = expected_plan(c, ids);
  result.expect(std::memcmp(base + layout.row_slot, plan.row_slot.data(), plan.row_slot.size() * 4) == 0, "row_slot");
  result.expect(std::memcmp(out[0].data(), out[1].data(), out[0].size() * 2) == 0, "two runs differ in out");

  // Slots to look at, and quantised rows: exact.
  std::vector<std::pair<int64_t, int64_t>> entries;  // (entry, slot)
  for (size_t i = 0; i < plan.row_slot.size(); ++i)
    if (plan.row_slot[i] >= 0) entries.emplace_back(static_cast<int64_t>(i), plan.row_slot[i]);
  if (static_cast<int>(entries.size()) > max_slots) {
    std::sort(entries.begin(), entries.end(),
              [&](auto a, auto b) { return mix(c.seed + static_cast<uint64_t>(a.first)) < mix(c.seed + static_cast<uint64_t>(b.first)); });
    entries.resize(static_cast<size_t>(max_slots));
  }
  std::vector<double> h_num(entries.size()), h_den(entries.size()), y_num(entries.size()), y_den(entries.size()),
      scale_error(entries.size());
  std::vector<int64_t> steps(entries.size()), bad(entries.size()), x_bad(entries.size()), unstable(entries.size());
  parallel_for(static_cast<int64_t>(entries.size()), [&](int64_t n) {
    const auto i = static_cast<size_t>(n);
    const auto [entry, slot] = entries[i];
    const int64_t row = entry / p.choices;
    const auto e = static_cast<int64_t>(std::upper_bound(plan.begin.begin(), plan.begin.end(), slot) - plan.begin.begin()) - 1;
    const QuantisedRow q = quantise_row(x.data() + row * p.width, p.width);
    for (int64_t k = 0; k < p.width; ++k) x_bad[i] += *panel_byte(layout.x, slot, k) != q.codes[static_cast<size_t>(k)];
    for (int64_t b = 0; b < p.width / 128; ++b) x_bad[i] += floats(layout.x_scale)[b * slots + slot] != q.scales[static_cast<size_t>(b)];

    std::vector<double> h(static_cast<size_t>(p.inner));
    std::vector<double> noise(static_cast<size_t>(p.inner));  // of h, from the noise of the two sums
    std::vector<uint8_t> h_codes(static_cast<size_t>(p.inner));
    for (int64_t o = 0; o < p.inner; ++o) {
      const int64_t scale_row = (e * (p.inner / 128) + o / 128) * (p.width / 128);
      const int64_t w_row = (e * p.inner + o) * p.width;
      const Dot g = dot_blocks(q.codes.data(), q.scales.data(), 1, host.gate.data() + w_row, host.gate_scale.data() + scale_row, p.width);
      const Dot u = dot_blocks(q.codes.data(), q.scales.data(), 1, host.up.data() + w_row, host.up_scale.data() + scale_row, p.width);
      h[static_cast<size_t>(o)] = swiglu_reference(g.value, u.value, c.limit);
      const double silu = swiglu_reference(g.value, 1, std::max<double>(c.limit, 1));
      noise[static_cast<size_t>(o)] =
          1e-4 * (1.1 * std::min(std::fabs(u.value), static_cast<double>(c.limit)) * g.magnitude + std::fabs(silu) * u.magnitude);
    }
    for (int64_t b = 0; b < p.inner / 128; ++b) {
      double amax = 0;
      for (int k = 0; k < 128; ++k) amax = std::max(amax, std::fabs(h[static_cast<size_t>(b * 128 + k)]));
      const float scale = floats(layout.h_scale)[b * slots + slot];
      const double want = amax > 0 ? amax / 448 : 1;
      scale_error[i] = std::max(scale_error[i], std::fabs(scale - want) / want);
      for (int k = 0; k < 128; ++k) {
        const auto o = static_cast<size_t>(b * 128 + k);
        const uint8_t code = *panel_byte(layout.h, slot, static_cast<int64_t>(o));
        h_codes[o] = code;
        const double got = static_cast<double>(kDecodeTable.value[code]) * scale;
        h_num[i] += (got - h[o]) * (got - h[o]);
        h_den[i] += h[o] * h[o];
        steps[i] += code != to_e4m3(static_cast<float>(h[o] / want)).bits;
        // One rounding of e4m3 (relative 1/16, absolute half of the smallest step) and the noise of the products.
        if (!(std::fabs(got - h[o]) <= std::fabs(h[o]) * 0.066 + scale * 0x1p-10 + noise[o] + 1e-3 * amax)) ++bad[i];
      }
    }
    for (int64_t o = 0; o < p.width; ++o) {
      const double want = dot_blocks(h_codes.data(), floats(layout.h_scale) + slot, slots, host.down.data() + (e * p.width + o) * p.inner,
                                     host.down_scale.data() + (e * (p.width / 128) + o / 128) * (p.inner / 128), p.inner)
                              .value;
      const uint8_t* at = panel_byte(layout.y, slot, 2 * o);
      bf16 value;
      std::memcpy(&value, at, 2);
      const double got = to_float(value);
      y_num[i] += (got - want) * (got - want);
      y_den[i] += want * want;
      unstable[i] += std::memcmp(at, memory[1].data() + (at - base), 2) != 0;
    }
  });
  const auto sum = [](const auto& v) { return std::accumulate(v.begin(), v.end(), 0.0); };
  result.expect(sum(x_bad) == 0, "quantised rows differ");
  result.h_error = std::sqrt(sum(h_num) / std::max(sum(h_den), 1e-30));
  result.y_error = std::sqrt(sum(y_num) / std::max(sum(y_den), 1e-30));
  result.h_step = sum(steps) / std::max(1.0, static_cast<double>(entries.size()) * static_cast<double>(p.inner));
  for (const double e : scale_error) result.h_scale_error = std::max(result.h_scale_error, e);
  result.expect(sum(bad) == 0, "h off by more than a rounding: " + std::to_string(sum(bad)));
  result.expect(entries.empty() || result.h_scale_error < 5e-3, "scales of h");
  result.expect(result.h_error < 0.04, "h");  // e4m3 rounding alone gives 0.026
  result.expect(result.y_error < 3e-3, "y");  // bf16 rounding alone gives 0.0017
  result.expect(sum(unstable) == 0, "two runs differ in y");

  // Combine: exact on the device's own y.
  std::vector<int64_t> wrong(static_cast<size_t>(p.rows));
  parallel_for(p.rows, [&](int64_t r) {
    for (int64_t o = 0; o < p.width; ++o) {
      float v = c.shared ? to_float(shared[static_cast<size_t>(r * p.width + o)]) : 0.0F;
      for (int j = 0; j < p.choices; ++j) {
        const int32_t slot = plan.row_slot[static_cast<size_t>(r * p.choices + j)];
        bf16 y{0};
        if (slot >= 0) std::memcpy(&y, panel_byte(layout.y, slot, 2 * o), 2);
        v = std::fma(slot >= 0 ? weights[static_cast<size_t>(r * p.choices + j)] : 0.0F, to_float(y), v);
      }
      wrong[static_cast<size_t>(r)] += to_bf16(v).bits != out[0][static_cast<size_t>(r * p.width + o)].bits;
    }
  });
  result.expect(sum(wrong) == 0, "out: " + std::to_string(sum(wrong)) + " elements");
  return result;
}

}  // namespace baton::gpu_test
