// Runs cases of sparse attention on the device and compares with double.
#pragma once

#include <atomic>
#include <mutex>

#include "ops/cuda/mla_sparse/launch.h"
#include "tests/gpu/mla_case.h"

namespace baton::gpu_test {

namespace mla = cuda::mla;

// A case's data on the device, or that of some of its rows in another order.
struct MlaDevice {
  DeviceArray<std::byte> pages;
  DeviceArray<int32_t> row_sequence, positions, page_tables, pools, counts, tail_begin;
  DeviceArray<bf16> q, out;
  ops::MlaAttendParams params;

  MlaDevice(const MlaCase& c, const MlaData& d, const std::vector<int64_t>& rows)
      : pages(d.pages), page_tables(d.page_tables), out(static_cast<int64_t>(rows.size()) * c.heads * c.kDim) {
    const auto pick = [&](const auto& all, int64_t width) {
      auto some = all;
      some.clear();
      for (const auto r : rows) some.insert(some.end(), all.begin() + r * width, all.begin() + (r + 1) * width);
      return some;
    };
    row_sequence = DeviceArray<int32_t>(pick(d.row_sequence, 1));
    positions = DeviceArray<int32_t>(pick(d.positions, 1));
    pools = DeviceArray<int32_t>(pick(d.pools, c.capacity));
    counts = DeviceArray<int32_t>(pick(d.counts, 1));
    tail_begin = DeviceArray<int32_t>(pick(d.tail_begin, 1));
    q = DeviceArray<bf16>(pick(d.q, c.heads * c.kDim));
    const auto m = static_cast<int32_t>(rows.size());
    params.batch.row_count = m;
    params.batch.sequence_count = static_cast<int32_t>(c.sequences.size());
    params.batch.row_sequence = row_sequence.get();
    params.batch.positions = positions.get();
    params.batch.page_tables = page_tables.get();
    params.batch.page_table_stride = d.table_stride;
    const int64_t width = c.heads * c.kDim;
    params.q = {q.get(), DType::kBF16, m, width, width};
    params.out = {out.get(), DType::kBF16, m, width, width};
    params.heads = c.heads;
    params.scale = c.scale;
    params.pages = {pages.get(), d.page_stride};
    params.layout = {c.kDim, d.page_offset, c.row_bytes(), c.dtype};
    params.selection = {pools.get(), counts.get(), tail_begin.get(), c.capacity};
    params.pool = c.pool;
  }

  std::vector<bf16> run(const mla::Config& config) {
    DeviceArray<std::byte> workspace(config.workspace_bytes);
    workspace.fill_bytes(0xFF);
    out.fill_bytes(0xFF);
    CUDA_OK(mla::attend(params, config, workspace.get(), true, nullptr));
    CUDA_OK(cudaGetLastError());
    CUDA_OK(cudaDeviceSynchronize());
    return out.host();
  }
};

inline std::vector<int64_t> all_rows(const MlaCase& c) {
  std::vector<int64_t> rows(static_cast<size_t>(c.rows()));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  return rows;
}

inline bool same_bits(const std::vector<bf16>& a, const std::vector<bf16>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 2) == 0);
}

// At most `rows_checked` rows are compared with double; bits are compared for all. prefill: by the kernel for many rows.
inline bool check_mla(const MlaCase& c, int splits, int64_t rows_checked, bool prefill) {
  const MlaData data(c);
  MlaDevice device(c, data, all_rows(c));
  mla::Config config = splits > 0 ? mla::configure(device.params, splits) : mla::configure(device.params, 132, false);
  config.prefill = prefill;
  const auto configured_for = [&](const MlaDevice& some) {
    mla::Config same = mla::configure(some.params, config.splits);
    same.prefill = prefill;
    return same;
  };
  std::string failures;
  if (!mla::supported(device.params)) failures += " not supported;";
  const auto got = device.run(config);
  if (!same_bits(got, device.run(config))) failures += " second run differs;";
  // The same rows in reverse order, and the first alone: the same bits.
  auto rows = all_rows(c);
  std::reverse(rows.begin(), rows.end());
  const auto width = static_cast<size_t>(c.heads * c.kDim);
  if (!rows.empty()) {
    MlaDevice reversed(c, data, rows);
    const auto other = reversed.run(configured_for(reversed));
    for (size_t i = 0; i < rows.size(); ++i)
      if (std::memcmp(&got[i * width], &other[(rows.size() - 1 - i) * width], width * 2) != 0) {
        failures += " reversed batch differs;";
        break;
      }
    MlaDevice single(c, data, {rows.front()});
    const auto one = single.run(configured_for(single));
    if (std::memcmp(&got[static_cast<size_t>(rows.front()) * width], one.data(), width * 2) != 0) failures += " single row differs;";
  }
  double error = 0, size = 0, dot = 0, got_size = 0, worst = 0;
  std::mutex mutex;
  const int64_t step = std::max<int64_t>(1, c.rows() / std::max<int64_t>(rows_checked, 1));
  parallel_for((c.rows() + step - 1) / step, [&](int64_t i) {
    const int64_t r = i * step;
    const auto want = expected_row(c, data, r);
    double e = 0, s = 0, xy = 0, yy = 0, w = 0;
    for (int64_t h = 0; h < c.heads; ++h) {
      double head_error = 0, head_top = 0;
      for (int64_t k = 0; k < c.kDim; ++k) {
        const double x = want[static_cast<size_t>(h * c.kDim + k)];
        const double y = static_cast<double>(__bfloat162float(got[static_cast<size_t>((r * c.heads + h) * c.kDim + k)]));
        e += (x - y) * (x - y);
        s += x * x;
        yy += y * y;
        xy += x * y;
        head_error = std::max(head_error, std::isnan(y) ? INFINITY : std::fabs(x - y));
        head_top = std::max(head_top, std::fabs(x));
      }
      w = std::max(w, head_error / head_top);
    }
    const std::lock_guard lock(mutex);
    error += e;
    size += s;
    dot += xy;
    got_size += yy;
    worst = std::max(worst, w);
  });
  const double relative = size > 0 ? std::sqrt(error / size) : 0;
  const double cosine = size > 0 ? 1 - 2 * dot / (size + got_size) : 0;
  if (!(relative < 3e-3)) failures += " relative error;";
  if (!(cosine < 5e-6)) failures += " cosine;";
  if (!(worst < 8e-3)) failures += " largest error;";
  std::printf("%-34s %s%s  splits %2d  rel %.5f  cosine %.1e  worst of a head %.4f %s\n", c.name.c_str(),
              failures.empty() ? "ok  " : "FAIL", prefill ? " (prefill)" : "", config.splits, relative, cosine, worst, failures.c_str());
  std::fflush(stdout);
  return failures.empty();
}

// Cases that failed.
inline int check_mla_all(bool small) {
  int failed = 0;
  const auto run = [&](MlaCase c, int splits = 1, int64_t rows_checked = 12) {
    static uint64_t seed = 1;
    c.seed = seed++;
    failed += check_mla(c, splits, rows_checked, false) ? 0 : 1;
    if (c.dtype == DType::kBF16 && splits == 1) failed += check_mla(c, 1, rows_checked, true) ? 0 : 1;
  };
  const auto e4m3 = DType::kF8E4M3;
  const auto bf = DType::kBF16;
  for (const auto t : {e4m3, bf}) {
    const std::string n = t == e4m3 ? "fp8 " : "bf16 ";
    run({n + "one token", t, {{0, 1}}});
    run({n + "first nine tokens", t, {{0, 9}}});
    run({n + "verify, ragged", t, {{700, 8}, {130, 3}, {61, 8}}, 4, 32});
    run({n + "verify, ragged, split", t, {{700, 8}, {130, 3}, {61, 8}}, 4, 64}, 3);
    if (small) continue;
    run({n + "no rows", t, {}});
    run({n + "edges of tiles", t, {{14, 4}, {62, 4}, {126, 4}, {254, 4}, {510, 3}}});
    run({n + "maximal, tail 0 to 3", t, {{65528, 8}, {9000, 8}}});
    run({n + "maximal, own splits", t, {{65528, 8}}}, 0);
    run({n + "more splits than tiles", t, {{300, 8}}}, 16);
    run({n + "one head", t, {{900, 5}}, 4, 64, 1});
    run({n + "sixteen heads", t, {{900, 5}}, 4, 64, 16}, 2);
    run({n + "eighty heads", t, {{900, 5}}, 4, 64, 80}, 2);
    for (const int32_t pool : {1, 2, 8, 16, 32, 64}) run({n + "pools of " + std::to_string(pool), t, {{1500, 9}}, pool, 512 / pool});
    run({n + "rising scores", t, {{5000, 4}}, 4, 512, 64, 0.0625F, 1, "rising"});
    run({n + "sharp scores", t, {{5000, 4}}, 4, 512, 64, 1.0F, 2});
    run({n + "tiny queries", t, {{3000, 3}}, 4, 512, 64, 0.0625F, 1e-20F});
    run({n + "huge queries", t, {{3000, 3}}, 4, 512, 64, 1e-20F, 1e19F});
    run({n + "saturated", t, {{3000, 3}}, 4, 512, 64, 1e-5F, 1, "saturated"});
    if (t == e4m3) run({n + "scales far apart", t, {{3000, 8}}, 4, 512, 64, 0.0625F, 1, "uneven"});
    run({n + "many rows", t, {{4000, 8}, {3000, 8}, {2500, 130}, {7000, 8}}});
  }
  return failed;
}

}  // namespace baton::gpu_test
