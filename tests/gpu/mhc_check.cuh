// Cases of mHC on the device against double. What follows a rounding is judged from the device's own rounded values.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>
#include <string>

#include "ops/cuda/mhc/launch.h"
#include "ops/cuda/mhc/params.h"
#include "tests/gpu/gpu_support.cuh"

namespace baton::gpu_test {

namespace mhc = cuda::mhc;
using bf16 = __nv_bfloat16;

struct MhcCase {
  std::string name;
  int64_t rows = 0;
  bool expands = true;
  bool quantises = true;
  bool in_place = true;  // coefficients of the next site over those of the last
  float size = 1;        // of the streams
  float logit_size = 1;  // of fn
  int iterations = 20;
  int64_t padding = 0;  // of every row, elements
  uint64_t seed = 1;
};

inline double as_double(bf16 v) { return static_cast<double>(__bfloat162float(v)); }

struct MhcData {
  static constexpr int64_t kWide = int64_t{mhc::kStreams} * mhc::kWidth;
  std::vector<bf16> streams, y, fn;
  std::vector<float> post, comb, base, scale, weight;

  explicit MhcData(const MhcCase& c) {
    const auto fill = [&](auto& v, int64_t count, float size, uint64_t salt) {
      v.resize(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        const float x = size * normal(c.seed * 1000003 + (salt << 40) + static_cast<uint64_t>(i));
        if constexpr (std::is_same_v<std::decay_t<decltype(v[0])>, bf16>)
          v[static_cast<size_t>(i)] = __float2bfloat16(x);
        else
          v[static_cast<size_t>(i)] = x;
      }
    };
    fill(streams, c.rows * (kWide + c.padding), c.size, 1);
    fill(y, c.rows * (mhc::kWidth + c.padding), c.size, 2);
    fill(fn, mhc::kMix * kWide, c.logit_size / 128, 3);
    fill(post, c.rows * (mhc::kStreams + c.padding), 1, 4);
    fill(comb, c.rows * (16 + c.padding), 0.5F, 5);
    fill(base, mhc::kMix, 1, 6);
    fill(scale, 3, 1, 7);
    fill(weight, mhc::kWidth, 1, 8);
  }
};

struct MhcResult {
  std::vector<bf16> streams, x;
  std::vector<float> post, comb, code_scales;
  std::vector<uint8_t> codes;
  bool operator==(const MhcResult& o) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
    };
    return same(streams, o.streams) && same(x, o.x) && same(post, o.post) && same(comb, o.comb) && same(codes, o.codes) &&
           same(code_scales, o.code_scales);
  }
};

// Runs rows in the given order; the result is in the case's order again.
inline MhcResult run_mhc(const MhcCase& c, const MhcData& d, bool reversed) {
  const auto order = [&](const auto& v) {
    auto r = v;
    const int64_t width = c.rows > 0 ? static_cast<int64_t>(v.size()) / c.rows : 0;
    if (reversed)
      for (int64_t i = 0; i < c.rows; ++i) std::copy_n(v.begin() + i * width, width, r.begin() + (c.rows - 1 - i) * width);
    return r;
  };
  DeviceArray<bf16> streams(order(d.streams)), y(order(d.y)), fn(d.fn), x(c.rows * (mhc::kWidth + c.padding));
  DeviceArray<float> post(order(d.post)), comb(order(d.comb)), base(d.base), scale(d.scale), weight(d.weight);
  DeviceArray<float> post_out(post.count()), comb_out(comb.count()), code_scales(c.rows * (mhc::kWidth / 128));
  DeviceArray<uint8_t> codes(c.rows * mhc::kWidth);
  x.fill_bytes(0xFF);
  codes.fill_bytes(0xFF);
  code_scales.fill_bytes(0xFF);
  post_out.fill_bytes(0xFF);
  comb_out.fill_bytes(0xFF);
  const auto view = [&](auto& a, DType t, int64_t cols) { return MatrixView{a.get(), t, c.rows, cols, cols + c.padding}; };
  ops::MhcMixParams p;
  p.streams = view(streams, DType::kBF16, MhcData::kWide);
  if (c.expands) {
    p.y = view(y, DType::kBF16, mhc::kWidth);
    p.from = {view(post, DType::kF32, mhc::kStreams), view(comb, DType::kF32, 16)};
  }
  auto& to_post = c.in_place ? post : post_out;
  auto& to_comb = c.in_place ? comb : comb_out;
  p.to = {view(to_post, DType::kF32, mhc::kStreams), view(to_comb, DType::kF32, 16)};
  p.stream_count = mhc::kStreams;
  p.fn = {fn.get(), nullptr, DType::kBF16, mhc::kMix, MhcData::kWide};
  p.base = base.get();
  p.scale = scale.get();
  p.norm_weight = weight.get();
  p.norm_eps = 1e-5F;
  p.hc_eps = 1e-6F;
  p.sinkhorn_iterations = c.iterations;
  p.x = view(x, DType::kBF16, mhc::kWidth);
  if (!mhc::supported(p)) std::printf("not supported: ");
  mhc::QuantisedRows quantised;
  if (c.quantises) quantised = {codes.get(), code_scales.get()};
  CUDA_OK(mhc::mix(p, quantised, true, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
  return {order(streams.host()), order(x.host()),           order(to_post.host()),
          order(to_comb.host()), order(code_scales.host()), order(codes.host())};
}

// Half a unit in the last place of a bf16 of this magnitude, and what the sum in float may add.
inline double half_step(double x, double terms) {
  return std::ldexp(1.0, std::ilogb(std::max(std::fabs(x), 1e-37)) - 8) * 1.001 + terms * 1e-6;
}

inline bool check_mhc(const MhcCase& c) {
  const MhcData d(c);
  const MhcResult got = run_mhc(c, d, false);
  std::string failures;
  const auto expect = [&](bool ok, const char* what) {
    if (!ok && failures.find(what) == std::string::npos) failures += std::string(" ") + what + ";";
  };
  expect(got == run_mhc(c, d, false), "second run differs");
  expect(got == run_mhc(c, d, true), "reversed batch differs");
  double worst_post = 0, worst_comb = 0, error = 0, size = 0;
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto stride = [&](int64_t cols) { return r * (cols + c.padding); };
    const bf16* before = d.streams.data() + stride(MhcData::kWide);
    const bf16* streams = got.streams.data() + stride(MhcData::kWide);
    const float* post = d.post.data() + stride(mhc::kStreams);
    const float* comb = d.comb.data() + stride(16);
    for (int64_t i = 0; i < mhc::kStreams; ++i)
      for (int64_t k = 0; k < mhc::kWidth; ++k) {
        double v = as_double(before[i * mhc::kWidth + k]);
        double terms = 0;
        if (c.expands) {
          v = static_cast<double>(post[i]) * as_double(d.y[static_cast<size_t>(stride(mhc::kWidth) + k)]);
          terms = std::fabs(v);
          for (int64_t j = 0; j < mhc::kStreams; ++j) {
            const double term = static_cast<double>(comb[j * mhc::kStreams + i]) * as_double(before[j * mhc::kWidth + k]);
            v += term;
            terms += std::fabs(term);
          }
        }
        expect(std::fabs(as_double(streams[i * mhc::kWidth + k]) - v) <= (c.expands ? half_step(v, terms) : 0.0), "streams");
      }
    double squares = 0;
    double m[mhc::kMix] = {};
    for (int64_t k = 0; k < MhcData::kWide; ++k) {
      const double x = as_double(streams[k]);
      squares += x * x;
      for (int n = 0; n < mhc::kMix; ++n) m[n] += x * as_double(d.fn[static_cast<size_t>(n * MhcData::kWide + k)]);
    }
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(MhcData::kWide) + 1e-5);
    const auto logit = [&](int n, int which) {
      return m[n] * inverse * static_cast<double>(d.scale[static_cast<size_t>(which)]) +
             static_cast<double>(d.base[static_cast<size_t>(n)]);
    };
    double pre[4], want_post[4], k[4][4];
    for (int i = 0; i < 4; ++i) pre[i] = 1 / (1 + std::exp(-logit(i, 0))) + 1e-6;
    for (int i = 0; i < 4; ++i) want_post[i] = 2 / (1 + std::exp(-logit(4 + i, 1)));
    for (int i = 0; i < 4; ++i) {
      double top = -INFINITY, sum = 0;
      for (int j = 0; j < 4; ++j) top = std::max(top, logit(8 + 4 * i + j, 2));
      for (int j = 0; j < 4; ++j) sum += k[i][j] = std::exp(logit(8 + 4 * i + j, 2) - top);
      for (int j = 0; j < 4; ++j) k[i][j] = k[i][j] / sum + 1e-6;
    }
    for (int t = 0; t < 2 * c.iterations - 1; ++t)
      for (int i = 0; i < 4; ++i) {
        double sum = 1e-6;
        for (int j = 0; j < 4; ++j) sum += t % 2 == 0 ? k[j][i] : k[i][j];
        for (int j = 0; j < 4; ++j) (t % 2 == 0 ? k[j][i] : k[i][j]) /= sum;
      }
    for (int i = 0; i < 4; ++i) {
      worst_post = std::max(worst_post, std::fabs(want_post[i] - static_cast<double>(got.post[static_cast<size_t>(stride(4) + i)])));
      for (int j = 0; j < 4; ++j)
        worst_comb = std::max(worst_comb, std::fabs(k[i][j] - static_cast<double>(got.comb[static_cast<size_t>(stride(16) + 4 * i + j)])));
    }
    std::vector<double> u(mhc::kWidth), terms(mhc::kWidth);
    double u_squares = 0;
    for (size_t i = 0; i < mhc::kWidth; ++i) {
      double v = 0;
      for (size_t t = 0; t < 4; ++t) {
        v += pre[t] * as_double(streams[t * mhc::kWidth + i]);
        terms[i] += std::fabs(pre[t] * as_double(streams[t * mhc::kWidth + i]));
      }
      u[i] = as_double(__float2bfloat16(static_cast<float>(v)));
      u_squares += u[i] * u[i];
    }
    const double norm = 1 / std::sqrt(u_squares / mhc::kWidth + 1e-5);
    const bf16* x = got.x.data() + stride(mhc::kWidth);
    for (size_t i = 0; i < mhc::kWidth; ++i) {
      const double want = u[i] * norm * static_cast<double>(d.weight[i]);
      // Half a step of x, and one of u where a tie rounds the other way: up to 2^-7 of the value and its product, three steps of x at most.
      expect(std::fabs(as_double(x[i]) - want) <= 6 * half_step(want, terms[i] * norm * std::fabs(static_cast<double>(d.weight[i]))), "x");
      error += (as_double(x[i]) - want) * (as_double(x[i]) - want);
      size += want * want;
    }
    if (!c.quantises) continue;
    for (int64_t b = 0; b < mhc::kWidth / 128; ++b) {
      float largest = 0;
      for (int64_t i = 128 * b; i < 128 * b + 128; ++i) largest = std::max(largest, std::fabs(__bfloat162float(x[i])));
      const float scale = largest > 0 ? largest / 448.0F : 1.0F;
      expect(got.code_scales[static_cast<size_t>(r * (mhc::kWidth / 128) + b)] == scale, "code scale");
      for (int64_t i = 128 * b; i < 128 * b + 128; ++i) {
        const __nv_fp8_e4m3 want(__bfloat162float(x[i]) / scale);
        expect(got.codes[static_cast<size_t>(r * mhc::kWidth + i)] == want.__x, "codes");
      }
    }
  }
  expect(worst_post < 3e-5, "post");
  expect(worst_comb < 3e-5, "C");
  const double relative = size > 0 ? std::sqrt(error / size) : 0;
  expect(relative < 3e-3, "x as a whole");
  std::printf("%-28s %s  post %.1e  C %.1e  x rel %.5f %s\n", c.name.c_str(), failures.empty() ? "ok  " : "FAIL", worst_post, worst_comb,
              relative, failures.c_str());
  std::fflush(stdout);
  return failures.empty();
}

// expand alone equals the expand of mix, and the mean of the streams is normed.
inline bool check_mhc_ends(int64_t rows) {
  MhcCase c{"expand and final", rows};
  c.seed = 99;
  const MhcData d(c);
  const MhcResult mixed = run_mhc(c, d, false);
  DeviceArray<bf16> streams(d.streams), y(d.y), h(rows * mhc::kWidth);
  DeviceArray<float> post(d.post), comb(d.comb), weight(d.weight);
  h.fill_bytes(0xFF);
  ops::MhcExpandParams e;
  e.streams = {streams.get(), DType::kBF16, rows, MhcData::kWide, MhcData::kWide};
  e.y = {y.get(), DType::kBF16, rows, mhc::kWidth, mhc::kWidth};
  e.from = {{post.get(), DType::kF32, rows, 4, 4}, {comb.get(), DType::kF32, rows, 16, 16}};
  e.stream_count = mhc::kStreams;
  CUDA_OK(mhc::expand(e, true, nullptr));
  ops::MhcFinalParams f;
  f.streams = e.streams;
  f.stream_count = mhc::kStreams;
  f.norm_weight = weight.get();
  f.norm_eps = 1e-5F;
  f.h = {h.get(), DType::kBF16, rows, mhc::kWidth, mhc::kWidth};
  CUDA_OK(mhc::final(f, true, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
  const auto got = streams.host();
  const auto means = h.host();
  bool ok = got.empty() || std::memcmp(got.data(), mixed.streams.data(), got.size() * 2) == 0;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> u(mhc::kWidth);
    double squares = 0;
    for (int64_t i = 0; i < mhc::kWidth; ++i) {
      double v = 0;
      for (int64_t t = 0; t < 4; ++t) v += 0.25 * as_double(got[static_cast<size_t>(r * MhcData::kWide + t * mhc::kWidth + i)]);
      u[static_cast<size_t>(i)] = as_double(__float2bfloat16(static_cast<float>(v)));
      squares += u[static_cast<size_t>(i)] * u[static_cast<size_t>(i)];
    }
    for (int64_t i = 0; i < mhc::kWidth; ++i) {
      const double want =
          u[static_cast<size_t>(i)] / std::sqrt(squares / mhc::kWidth + 1e-5) * static_cast<double>(d.weight[static_cast<size_t>(i)]);
      ok = ok && std::fabs(as_double(means[static_cast<size_t>(r * mhc::kWidth + i)]) - want) <= 4 * half_step(want, std::fabs(want));
    }
  }
  std::printf("%-28s %s  rows %ld\n", c.name.c_str(), ok ? "ok  " : "FAIL", rows);
  return ok;
}

// Cases that failed.
inline int check_mhc_all(bool small) {
  int failed = 0;
  uint64_t seed = 1;
  const auto run = [&](MhcCase c) {
    c.seed = seed++;
    failed += check_mhc(c) ? 0 : 1;
  };
  run({"one row", 1});
  run({"ragged", 21});
  run({.name = "first site", .rows = 9, .expands = false});
  if (!small) {
    run({"no rows", 0});
    for (const int64_t rows : {8, 15, 16, 17, 256, 300}) run({"rows " + std::to_string(rows), rows});
    run({.name = "no codes", .rows = 20, .quantises = false});
    run({.name = "coefficients apart", .rows = 20, .in_place = false});
    run({.name = "padded rows", .rows = 20, .padding = 8});
    run({.name = "large streams", .rows = 20, .size = 1e4F});
    run({.name = "tiny streams", .rows = 20, .size = 1e-5F});
    run({.name = "zero streams", .rows = 3, .size = 0});
    run({.name = "sharp coefficients", .rows = 20, .logit_size = 8});
    run({.name = "one iteration", .rows = 20, .iterations = 1});
  }
  failed += check_mhc_ends(small ? 3 : 100) ? 0 : 1;
  return failed;
}

}  // namespace baton::gpu_test
