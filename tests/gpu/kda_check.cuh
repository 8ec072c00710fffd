// Runs KDA decode cases on the device: against double, twice, permuted, in one pass against in two, and row by row.
#pragma once

#include <array>
#include <numeric>

#include "ops/cuda/kda/launch.h"
#include "tests/gpu/kda_case.h"

namespace baton::gpu_test {

namespace kda = cuda::kda;

struct KdaDeviceWeights {
  DeviceArray<float> conv, a_log, dt_bias, o_norm;
  explicit KdaDeviceWeights(const KdaProblem& p) : conv(p.conv), a_log(p.a_log), dt_bias(p.dt_bias), o_norm(p.o_norm) {}
  void fill(kda::DecodeParams& d) const {
    d.conv = conv.get();
    d.a_log = a_log.get();
    d.dt_bias = dt_bias.get();
    d.o_norm = o_norm.get();
    d.norm_eps = 1e-5F;
    d.lower_bound_log2 = -5.0F * 1.4426950408889634F;
  }
};

// What a launch left behind.
struct KdaRun {
  std::vector<bf16> y;  // rows in the order of the problem
  std::vector<std::byte> pool;
};

struct KdaDevice {
  const KdaProblem& p;
  KdaDeviceWeights weights;
  DeviceArray<bf16> inputs, gate;

  explicit KdaDevice(const KdaProblem& problem) : p(problem), weights(problem), inputs(problem.inputs), gate(problem.gate) {}

  kda::DecodeParams params(std::byte* pool, bf16* y) const {
    kda::DecodeParams d;
    weights.fill(d);
    d.heads = static_cast<int32_t>(p.c.heads);
    d.inputs = reinterpret_cast<const __nv_bfloat16*>(inputs.get());
    d.input_stride = p.input_stride();
    d.gate = reinterpret_cast<const __nv_bfloat16*>(gate.get());
    d.gate_stride = p.gate_stride();
    d.y = reinterpret_cast<__nv_bfloat16*>(y);
    d.y_stride = p.width;
    d.slots = pool;
    d.slot_stride = p.slot_bytes;
    d.state_offset = p.layout.state_offset;
    d.window_offset = p.layout.window_offset;
    d.ring_offset = p.layout.ring_offset;
    d.ring_rows = p.layout.ring_rows;
    d.state_bf16 = p.c.state == DType::kBF16;
    return d;
  }

  struct How {
    std::vector<int32_t> order;  // of the sequences; empty: as they are
    bool counts_in_slot = false;
    bool separate_fold = false;
    bool dependent = true;
  };
  // `sequences`: what to run of each; rows start at the problem's.
  KdaRun run(const std::vector<std::byte>& start, const std::vector<KdaSequence>& sequences, const std::vector<int64_t>& row_begin,
             const How& how) const {
    const DeviceArray<std::byte> pool(start);
    DeviceArray<bf16> y(p.rows * p.width);
    y.fill_bytes(0xFF);
    std::vector<int32_t> order = how.order;
    if (order.empty()) {
      order.resize(sequences.size());
      std::iota(order.begin(), order.end(), 0);
    }
    std::vector<ops::SequenceRows> host;
    std::vector<int32_t> counts;
    for (const int32_t i : order) {
      const auto& s = sequences[static_cast<size_t>(i)];
      host.push_back({static_cast<int32_t>(row_begin[static_cast<size_t>(i)]), s.rows, 0, i, s.verify});
      counts.push_back(s.fold);
    }
    const DeviceArray<ops::SequenceRows> device_sequences(host);
    const DeviceArray<int32_t> device_counts(counts);
    const DeviceArray<int32_t> device_slots(order);
    kda::DecodeParams d = params(pool.get(), y.get());
    d.sequence_count = static_cast<int32_t>(order.size());
    if (how.separate_fold) {
      d.slot_ids = device_slots.get();
      d.fold_counts = device_counts.get();
      CUDA_OK(kda::decode(d, false, nullptr));
      d.fold_counts = nullptr;
    } else if (how.counts_in_slot) {
      d.fold_count_offset = p.count_offset;
    } else {
      d.fold_counts = device_counts.get();
    }
    d.sequences = device_sequences.get();
    CUDA_OK(kda::decode(d, how.dependent, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    return {y.host(), pool.host()};
  }
};

inline std::vector<int64_t> row_begins(const KdaProblem& p) {
  std::vector<int64_t> begin;
  for (size_t i = 0; i < p.c.sequences.size(); ++i) begin.push_back(p.row_begin(i));
  return begin;
}

struct KdaErrors {
  double y = 0;        // largest relative L2 error of a row of a head
  double y_all = 0;    // relative L2 error of all rows
  double y_place = 0;  // the largest of the rows at one place of a chunk, over all heads and chunks
  double state = 0;    // largest relative L2 error of the state of a head
  std::string failures;
};

struct KdaBounds {
  double y = 0;
  double state = 0;
  // The chunked form: sequences that it leaves alone are expected untouched, and the error of a row is taken before the norm, against the
  // head's typical row: the norm blows up what cancels in a row.
  bool chunks = false;
};
inline KdaErrors compare_with_double(const KdaProblem& p, const KdaRun& run, const KdaBounds& bounds) {
  KdaErrors e;
  const auto runs = [&](size_t i) {
    const KdaSequence& s = p.c.sequences[i];
    return bounds.chunks && (s.rows <= 8 || s.verify != 0) ? KdaSequence{} : s;
  };
  const auto sequences = static_cast<int64_t>(p.c.sequences.size());
  std::vector<double> y_error(static_cast<size_t>(sequences * p.c.heads));
  std::vector<double> squares(y_error.size());
  std::vector<double> norms(y_error.size());
  std::vector<double> state_error(y_error.size());
  std::vector<std::array<std::pair<double, double>, 64>> places(y_error.size());  // squares of errors and of rows by place in the chunk
  std::vector<std::byte> expected = p.pool;                                       // windows and rings; states are compared apart
  parallel_for(sequences * p.c.heads, [&](int64_t item) {
    const auto i = static_cast<size_t>(item / p.c.heads);
    const int64_t head = item % p.c.heads;
    const KdaSequence s = runs(i);
    const std::byte* before = p.pool.data() + static_cast<int64_t>(i) * p.slot_bytes;
    std::byte* after = expected.data() + static_cast<int64_t>(i) * p.slot_bytes;
    const auto* ring = reinterpret_cast<const bf16*>(before + p.layout.ring_offset);
    KdaReference reference(p, i, head);
    for (int32_t t = 0; t < s.fold; ++t) reference.step(ring + t * p.columns, nullptr);
    if (s.fold > 0) reference.round_state();
    std::vector<double> committed = reference.state;
    size_t window = reference.line.size() - 3;
    std::vector<std::pair<double, double>> row_errors;  // relative, size of the row before the norm
    for (int32_t t = 0; t < s.rows; ++t) {
      const int64_t row = p.row_begin(i) + t;
      const std::vector<double> o =
          reference.step(&p.inputs[static_cast<size_t>(row * p.input_stride())], &p.gate[static_cast<size_t>(row * p.gate_stride())]);
      double error = 0;
      double norm = 0;
      for (int64_t j = 0; j < kKdaDim; ++j) {
        const double d =
            static_cast<double>(to_float(run.y[static_cast<size_t>(row * p.width + head * kKdaDim + j)])) - o[static_cast<size_t>(j)];
        error += d * d;
        norm += o[static_cast<size_t>(j)] * o[static_cast<size_t>(j)];
      }
      squares[static_cast<size_t>(item)] += error;
      norms[static_cast<size_t>(item)] += norm;
      auto& place = places[static_cast<size_t>(item)][static_cast<size_t>(s.position + t) % 64];
      place.first += error;
      place.second += norm;
      const double relative = std::sqrt(error / std::max(norm, 1e-12));
      row_errors.emplace_back(std::isnan(relative) ? 1e9 : relative, std::sqrt(reference.square));
      if (s.verify != 0) {
        auto* to = reinterpret_cast<bf16*>(after + p.layout.ring_offset) + t * p.columns;
        const bf16* from = &p.inputs[static_cast<size_t>(row * p.input_stride())];
        for (int part = 0; part < 4; ++part)
          std::memcpy(to + part * p.width + head * kKdaDim, from + part * p.width + head * kKdaDim, kKdaDim * 2);
        to[4 * p.width + head] = from[4 * p.width + head];
      }
    }
    double typical = 0;
    for (const auto& [relative, size] : row_errors) typical += size * size / static_cast<double>(row_errors.size());
    for (const auto& [relative, size] : row_errors) {
      const double weight = bounds.chunks && typical > 0 ? std::min(1.0, size / std::sqrt(typical)) : 1.0;
      y_error[static_cast<size_t>(item)] = std::max(y_error[static_cast<size_t>(item)], relative * weight);
    }
    if (s.verify == 0 && s.rows > 0) {
      reference.round_state();
      committed = reference.state;
      window = reference.line.size() - 3;
    }
    for (size_t r = 0; r < 3; ++r)
      for (int64_t x = 0; x < 3 * kKdaDim; ++x)
        reinterpret_cast<bf16*>(
            after + p.layout.window_offset)[static_cast<int64_t>(r) * 3 * p.width + x / kKdaDim * p.width + head * kKdaDim + x % kKdaDim] =
            to_bf16(reference.line[window + r][static_cast<size_t>(x)]);
    double error = 0;
    double norm = 1e-12;
    for (int64_t x = 0; x < kKdaDim * kKdaDim; ++x) {
      const int64_t at = head * kKdaDim * kKdaDim + x;
      const std::byte* slot = run.pool.data() + static_cast<int64_t>(i) * p.slot_bytes;
      const double v = p.c.state == DType::kF32 ? static_cast<double>(reinterpret_cast<const float*>(slot)[at])
                                                : static_cast<double>(to_float(reinterpret_cast<const bf16*>(slot)[at]));
      const double d = v - committed[static_cast<size_t>(x)];
      error += d * d;
      norm += committed[static_cast<size_t>(x)] * committed[static_cast<size_t>(x)];
    }
    const double relative = std::sqrt(error / norm);
    state_error[static_cast<size_t>(item)] = std::isnan(relative) ? 1e9 : relative;
  });
  for (const double v : y_error) e.y = std::max(e.y, v);
  e.y_all =
      std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0) / std::max(std::accumulate(norms.begin(), norms.end(), 0.0), 1e-12));
  for (const double v : state_error) e.state = std::max(e.state, v);
  for (size_t at = 0; at < 64; ++at) {
    std::pair<double, double> sum{0, 1e-12};
    for (const auto& item : places) sum = {sum.first + item[at].first, sum.second + item[at].second};
    e.y_place = std::max(e.y_place, std::sqrt(sum.first / sum.second));
  }
  for (size_t i = 0; i <= p.c.sequences.size(); ++i) {
    const auto at = static_cast<int64_t>(i) * p.slot_bytes;
    const bool untouched = i == p.c.sequences.size() || (runs(i).fold == 0 && (runs(i).rows == 0 || runs(i).verify != 0));
    const int64_t from = untouched ? 0 : p.layout.window_offset;
    if (std::memcmp(run.pool.data() + at + from, expected.data() + at + from, static_cast<size_t>(p.slot_bytes - from)) != 0)
      e.failures +=
          i == p.c.sequences.size() ? "foreign slot written; " : "slot " + std::to_string(i) + ": window, ring or idle state differs; ";
  }
  if (!(e.y < bounds.y)) e.failures += "y; ";
  if (bounds.chunks && !(e.y_all < 7e-3)) e.failures += "y of all rows; ";
  if (bounds.chunks && !(e.y_place < 1e-2)) e.failures += "y of a place in the chunk; ";
  if (!(e.state < bounds.state)) e.failures += "state; ";
  return e;
}

inline bool same_rows(const KdaProblem& p, const std::vector<bf16>& a, const std::vector<bf16>& b, int64_t first, int64_t count) {
  return std::memcmp(&a[static_cast<size_t>(first * p.width)], &b[static_cast<size_t>(first * p.width)],
                     static_cast<size_t>(count * p.width) * 2) == 0;
}

// Row by row in launches of one row: the rows of the batch have the same bits (both states), and with FP32 state what is committed as well.
inline void check_single_rows(const KdaProblem& p, const KdaDevice& device, const KdaRun& together, std::string& failures) {
  const auto begin = row_begins(p);
  const size_t n = p.c.sequences.size();
  KdaRun state{{}, p.pool};
  std::vector<KdaSequence> none(n);
  for (size_t i = 0; i < n; ++i) none[i].fold = p.c.sequences[i].fold;
  state = device.run(state.pool, none, begin, {});  // the fold of the first ring rows
  int32_t most = 0;
  for (const auto& s : p.c.sequences) most = std::max(most, s.rows);
  const bool exact = p.c.state == DType::kF32;
  for (int32_t t = 0; t < most && (exact || t == 0); ++t) {
    std::vector<KdaSequence> one(n);
    auto at = begin;
    for (size_t i = 0; i < n; ++i) {
      one[i].rows = t < p.c.sequences[i].rows ? 1 : 0;
      at[i] += t;
    }
    const KdaRun step = device.run(state.pool, one, at, {});
    for (size_t i = 0; i < n; ++i)
      if (one[i].rows > 0 && !same_rows(p, step.y, together.y, at[i], 1)) {
        failures += "row " + std::to_string(t) + " of sequence " + std::to_string(i) + " differs from a launch of its own; ";
        return;
      }
    state.pool = step.pool;
  }
  if (!exact) return;
  // Folding all verified rows from the ring commits the same bits.
  std::vector<KdaSequence> all(n);
  for (size_t i = 0; i < n; ++i)
    if (p.c.sequences[i].verify != 0) all[i].fold = p.c.sequences[i].rows;
  const KdaRun folded = device.run(together.pool, all, begin, {});
  for (size_t i = 0; i < n; ++i) {
    const auto slot = static_cast<int64_t>(i) * p.slot_bytes;
    if (std::memcmp(folded.pool.data() + slot, state.pool.data() + slot, static_cast<size_t>(p.layout.ring_offset)) != 0) {
      failures += "fold of sequence " + std::to_string(i) + " differs from launches of one row; ";
      return;
    }
  }
}

inline KdaErrors check_kda_case(const KdaCase& c) {
  const KdaProblem p(c);
  const KdaDevice device(p);
  const auto begin = row_begins(p);
  const KdaRun first = device.run(p.pool, c.sequences, begin, {});
  // BF16 rows of the result are half a step (2^-9) off at most, a root mean square of about 1.1e-3; a BF16 state as well.
  KdaErrors e = compare_with_double(p, first, {4e-3, c.state == DType::kF32 ? 2e-5 : 3e-3, false});
  const auto same = [&](const KdaRun& other, const char* what) {
    if (std::memcmp(first.y.data(), other.y.data(), first.y.size() * 2) != 0 ||
        std::memcmp(first.pool.data(), other.pool.data(), first.pool.size()) != 0)
      e.failures += std::string(what) + " differs; ";
  };
  KdaDevice::How how;
  how.dependent = false;
  same(device.run(p.pool, c.sequences, begin, how), "second run");
  for (size_t i = 0; i < c.sequences.size(); ++i) how.order.push_back(static_cast<int32_t>((i * 7 + 3) % c.sequences.size()));
  std::vector<int32_t> sorted = how.order;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    std::iota(how.order.begin(), how.order.end(), 0);
    std::reverse(how.order.begin(), how.order.end());
  }
  same(device.run(p.pool, c.sequences, begin, how), "permuted batch");
  how.order.clear();
  how.counts_in_slot = true;
  same(device.run(p.pool, c.sequences, begin, how), "counts in the slot");
  how.counts_in_slot = false;
  how.separate_fold = true;
  same(device.run(p.pool, c.sequences, begin, how), "fold in a launch of its own");
  if (p.rows > 0) check_single_rows(p, device, first, e.failures);
  return e;
}

// The chunked form: rows of sequences longer than eight. `apart` cuts every sequence there into two launches.
inline KdaRun run_chunks(const KdaDevice& device, const std::vector<std::byte>& start, const std::vector<KdaSequence>& sequences,
                         const std::vector<int64_t>& row_begin, int32_t slab, bool dependent) {
  const KdaProblem& p = device.p;
  const DeviceArray<std::byte> pool(start);
  DeviceArray<bf16> y(p.rows * p.width);
  y.fill_bytes(0xFF);
  std::vector<ops::SequenceRows> host;
  int64_t rows = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    host.push_back(
        {static_cast<int32_t>(row_begin[i]), sequences[i].rows, sequences[i].position, static_cast<int32_t>(i), sequences[i].verify});
    rows = std::max<int64_t>(rows, sequences[i].rows);
  }
  const DeviceArray<ops::SequenceRows> device_sequences(host);
  DeviceArray<std::byte> workspace(kda::chunk_workspace_bytes(p.c.heads, static_cast<int64_t>(host.size()), slab));
  workspace.fill_bytes(0xFF);
  kda::ChunkForm form;
  form.base = device.params(pool.get(), y.get());
  form.base.sequences = device_sequences.get();
  form.base.sequence_count = static_cast<int32_t>(host.size());
  form.row_count = rows;
  form.slab_chunks = slab;
  form.workspace = workspace.get();
  CUDA_OK(kda::chunk(form, dependent, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
  return {y.host(), pool.host()};
}

inline KdaErrors check_chunk_case(const KdaCase& c) {
  const KdaProblem p(c);
  const KdaDevice device(p);
  const auto begin = row_begins(p);
  const KdaRun first = run_chunks(device, p.pool, c.sequences, begin, 8, true);
  // A row's error before norm and gate is 0.4 % of a typical row in the mean and 1.1 % at most in 58,000 rows (the operands' rounding).
  // Weights of norm and gate that lean on a few values make up to 1.8 % of it; what is wrong at a place of the chunk shows in the mean of
  // its rows.
  KdaErrors e = compare_with_double(p, first, {2.5e-2, 8e-3, true});
  const auto same = [&](const KdaRun& other, const char* what) {
    if (std::memcmp(first.y.data(), other.y.data(), first.y.size() * 2) != 0) e.failures += std::string("y ") + what + "; ";
    if (std::memcmp(first.pool.data(), other.pool.data(), first.pool.size()) != 0) e.failures += std::string("pool ") + what + "; ";
  };
  same(run_chunks(device, p.pool, c.sequences, begin, 8, false), "of a second run differs");
  same(run_chunks(device, p.pool, c.sequences, begin, 3, true), "with other slabs differs");
  if (c.sequences.size() > 1) {  // every sequence alone
    KdaRun alone{first.y, p.pool};
    for (size_t i = 0; i < c.sequences.size(); ++i) {
      std::vector<KdaSequence> one(c.sequences.size());
      one[i] = c.sequences[i];
      const KdaRun r = run_chunks(device, alone.pool, one, begin, 8, true);
      alone.pool = r.pool;
      const auto at = static_cast<size_t>(begin[i] * p.width);
      std::copy_n(r.y.begin() + static_cast<int64_t>(at), c.sequences[i].rows * p.width, alone.y.begin() + static_cast<int64_t>(at));
    }
    same(alone, "of sequences run alone differs");
  }
  // FP32 state: two launches that meet at a multiple of 64 are one, bit for bit.
  if (c.state == DType::kF32) {
    std::vector<KdaSequence> head = c.sequences;
    std::vector<KdaSequence> tail = c.sequences;
    auto tail_begin = begin;
    bool any = false;
    for (size_t i = 0; i < head.size(); ++i) {
      const int32_t cut = 128 - head[i].position % 64;
      if (head[i].rows < cut + 9) {
        tail[i].rows = 0;
        continue;
      }
      any = true;
      head[i].rows = cut;
      tail[i].rows -= cut;
      tail[i].position += cut;
      tail_begin[i] += cut;
    }
    if (any) {
      KdaRun a = run_chunks(device, p.pool, head, begin, 8, true);
      const KdaRun b = run_chunks(device, a.pool, tail, tail_begin, 8, true);
      for (size_t i = 0; i < head.size(); ++i)
        std::copy_n(b.y.begin() + tail_begin[i] * p.width, tail[i].rows * p.width, a.y.begin() + tail_begin[i] * p.width);
      same({a.y, b.pool}, "of two launches differs");
    }
  }
  return e;
}

}  // namespace baton::gpu_test
