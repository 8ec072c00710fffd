// Window attention of block drafters on the CPU.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/backend.h"
#include "ops/cpu/register.h"
#include "ops/cpu/row_access.h"

namespace baton::cpu {
namespace {

using ops::WindowAttendParams;
using ops::WindowLayout;
using ops::WindowWriteParams;

constexpr int64_t kBlockTokens = 64;
constexpr int64_t kRowGrain = 8;
// Query rows are dealt out in groups of this size, so that a row runs through the same code however many threads there are.
constexpr int64_t kRowGroup = 4;

// Cosines and sines of positions. In double: at a position of a million, rounding an angle to float would move it by a sixteenth.
class Angles {
 public:
  Angles(Arena& arena, float theta, int64_t dim, bool planning = false) : half_(dim / 2), frequency_(arena.array<double>(half_)) {
    if (planning) return;
    for (int64_t i = 0; i < half_; ++i) frequency_[i] = std::pow(double{theta}, -static_cast<double>(i) / static_cast<double>(half_));
  }
  // Cosines [dim / 2], then sines [dim / 2].
  void write(int64_t position, float* to) const {
    for (int64_t i = 0; i < half_; ++i) {
      const double angle = static_cast<double>(position) * frequency_[i];
      to[i] = static_cast<float>(std::cos(angle));
      to[half_ + i] = static_cast<float>(std::sin(angle));
    }
  }

 private:
  int64_t half_;
  double* frequency_;
};

void norm_and_rotate(const RowKernels& kernels, const float* norm, float eps, const float* angles, int64_t dim, float* x) {
  kernels.rms_norm(x, norm, eps, x, dim);
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    x[i] = a * angles[i] - b * angles[half + i];
    x[half + i] = b * angles[i] + a * angles[half + i];
  }
}

std::byte* ring_entry(const ops::SlotPoolView& slots, const WindowLayout& layout, int32_t slot, int64_t position) {
  return slots.slot(slot) + layout.slot_offset + position % layout.window * layout.entry_bytes();
}

void run_write(ops::Context& ctx, const WindowWriteParams& p) {
  const RowKernels& kernels = ctx.executor->rows();
  const int64_t dim = p.layout.dim;
  const int64_t width = p.layout.kv_heads * dim;
  const int64_t mark = ctx.workspace->mark();
  const Angles angles_of(*ctx.workspace, p.rotary.theta, dim);
  float* scratch = ctx.workspace->array<float>(ctx.executor->pool().size() * (width + dim));
  ctx.executor->pool().parallel_for(p.batch.row_count, kRowGrain, [&](int64_t begin, int64_t end, int thread) {
    float* row = scratch + thread * (width + dim);
    float* angles = row + width;
    for (int64_t r = begin; r < end; ++r) {
      const int32_t q = p.batch.row_sequence[r];
      const ops::SequenceRows& sequence = p.batch.sequences[q];
      const int64_t committed = p.counts == nullptr ? sequence.row_count : p.counts[q];
      const int64_t i = r - sequence.row_begin;
      if (i >= committed || i < committed - p.layout.window) continue;
      std::byte* to = ring_entry(p.slots, p.layout, sequence.slot, p.batch.positions[r]);
      angles_of.write(p.batch.positions[r], angles);
      kernels.widen(p.key.row_bytes(r), p.key.dtype, row, width);
      for (int64_t h = 0; h < p.layout.kv_heads; ++h) norm_and_rotate(kernels, p.norm, p.eps, angles, dim, row + h * dim);
      kernels.narrow(row, to, p.layout.dtype, width);
      kernels.widen(p.value.row_bytes(r), p.value.dtype, row, width);
      kernels.narrow(row, to + width * dtype_bytes(p.layout.dtype), p.layout.dtype, width);
    }
  });
  ctx.workspace->release(mark);
}

struct AttendScratch {
  float* q;         // [share * block, dim]: the rows of a block for one query head, then for the next
  float* out;       // likewise
  float* max;       // [share * block]
  float* sum;       // [share * block]
  float* keys;      // [tokens, dim], tokens = the larger of a block and kBlockTokens
  float* values;    // likewise
  float* products;  // [share * block, tokens]

  AttendScratch(Arena& arena, const WindowAttendParams& p) {
    const int64_t rows = p.heads / p.layout.kv_heads * p.block;
    const int64_t dim = p.layout.dim;
    const int64_t tokens = std::max(p.block, kBlockTokens);
    q = arena.array<float>(rows * dim);
    out = arena.array<float>(rows * dim);
    max = arena.array<float>(rows);
    sum = arena.array<float>(rows);
    keys = arena.array<float>(tokens * dim);
    values = arena.array<float>(tokens * dim);
    products = arena.array<float>(rows * tokens);
  }
  static int64_t bytes(const WindowAttendParams& p) {
    Arena plan;
    AttendScratch(plan, p);
    return plan.peak();
  }
};

// Query rows [first, last) of the heads that share one key head, for one sequence.
class HeadGroup {
 public:
  // angles: [m, dim] of all rows of the launch.
  HeadGroup(const RowKernels& kernels, const WindowAttendParams& p, AttendScratch& s, const float* angles,
            const ops::SequenceRows& sequence, int64_t kv_head, int64_t first, int64_t last)
      : kernels_(kernels), p_(p), s_(s), angles_(angles), sequence_(sequence), kv_head_(kv_head), first_(first), rows_(last - first),
        dim_(p.layout.dim) {}

  void run() {
    for (int64_t i = 0; i < rows_; ++i) {
      float* q = s_.q + i * dim_;
      kernels_.widen(p_.q.row_bytes(row(i)) + column(i) * dtype_bytes(p_.q.dtype), p_.q.dtype, q, dim_);
      norm_and_rotate(kernels_, p_.q_norm, p_.eps, angles_ + row(i) * dim_, dim_, q);
    }
    std::fill_n(s_.max, rows_, -std::numeric_limits<float>::infinity());
    std::fill_n(s_.sum, rows_, 0.0F);
    std::fill_n(s_.out, rows_ * dim_, 0.0F);
    const int64_t length = sequence_.position;
    for (int64_t t = std::max<int64_t>(0, length - p_.layout.window); t < length; t += kBlockTokens)
      context(t, std::min(kBlockTokens, length - t));
    own_block();
    for (int64_t i = 0; i < rows_; ++i) {
      float* o = s_.out + i * dim_;
      const float norm = 1.0F / s_.sum[i];
      for (int64_t j = 0; j < dim_; ++j) o[j] *= norm;
      write_row(kernels_, o, p_.out, row(i), column(i), dim_);
    }
  }

 private:
  int64_t row(int64_t i) const { return sequence_.row_begin + (first_ + i) % p_.block; }
  int64_t column(int64_t i) const { return (kv_head_ * (p_.heads / p_.layout.kv_heads) + (first_ + i) / p_.block) * dim_; }

  void context(int64_t first, int64_t count) {
    const DType type = p_.layout.dtype;
    for (int64_t j = 0; j < count; ++j) {
      const std::byte* entry = ring_entry(p_.slots, p_.layout, sequence_.slot, first + j) + kv_head_ * dim_ * dtype_bytes(type);
      kernels_.widen(entry, type, s_.keys + j * dim_, dim_);
      kernels_.widen(entry + p_.layout.kv_heads * dim_ * dtype_bytes(type), type, s_.values + j * dim_, dim_);
    }
    attend(count);
  }
  void own_block() {
    for (int64_t j = 0; j < p_.block; ++j) {
      const int64_t r = sequence_.row_begin + j;
      float* key = s_.keys + j * dim_;
      kernels_.widen(p_.key.row_bytes(r) + kv_head_ * dim_ * dtype_bytes(p_.key.dtype), p_.key.dtype, key, dim_);
      norm_and_rotate(kernels_, p_.k_norm, p_.eps, angles_ + r * dim_, dim_, key);
      kernels_.widen(p_.value.row_bytes(r) + kv_head_ * dim_ * dtype_bytes(p_.value.dtype), p_.value.dtype, s_.values + j * dim_, dim_);
    }
    attend(p_.block);
  }
  void attend(int64_t count) {
    const float scale = 1.0F / std::sqrt(static_cast<float>(dim_));
    kernels_.attend_block(s_.q, s_.keys, s_.values, count, rows_, dim_, scale, s_.max, s_.sum, s_.out, s_.products);
  }

  const RowKernels& kernels_;
  const WindowAttendParams& p_;
  AttendScratch& s_;
  const float* angles_;
  const ops::SequenceRows& sequence_;
  int64_t kv_head_;
  int64_t first_;
  int64_t rows_;
  int64_t dim_;
};

void run_attend(ops::Context& ctx, const WindowAttendParams& p) {
  ThreadPool& pool = ctx.executor->pool();
  const int64_t bytes = AttendScratch::bytes(p);
  const int64_t mark = ctx.workspace->mark();
  std::byte* scratch = ctx.workspace->array<std::byte>(pool.size() * bytes);
  float* angles = ctx.workspace->array<float>(p.batch.row_count * p.layout.dim);
  const Angles angles_of(*ctx.workspace, p.rotary.theta, p.layout.dim);
  pool.parallel_for(p.batch.row_count, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) angles_of.write(p.batch.positions[r], angles + r * p.layout.dim);
  });
  BATON_CHECK(p.batch.row_count == p.batch.sequence_count * p.block && p.heads % p.layout.kv_heads == 0);
  const int64_t rows = p.heads / p.layout.kv_heads * p.block;
  const int64_t groups = (rows + kRowGroup - 1) / kRowGroup;
  const int64_t pairs = p.batch.sequence_count * p.layout.kv_heads;
  // Few sequences: the query rows are split too, and their keys read by each part.
  const int64_t parts = pairs >= pool.size() ? 1 : std::min<int64_t>(groups, pool.size());
  pool.parallel_for(pairs * parts, 1, [&](int64_t begin, int64_t end, int thread) {
    Arena arena(scratch + thread * bytes, bytes);
    AttendScratch s(arena, p);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item % parts;
      const int64_t pair = item / parts;
      const int64_t first = groups * part / parts * kRowGroup;
      const int64_t last = std::min(rows, groups * (part + 1) / parts * kRowGroup);
      HeadGroup(ctx.executor->rows(), p, s, angles, p.batch.sequences[pair / p.layout.kv_heads], pair % p.layout.kv_heads, first, last)
          .run();
    }
  });
  ctx.workspace->release(mark);
}

}  // namespace

void register_window(ops::OpTable& table) {
  table.window_write = {run_write,
                        [](const WindowWriteParams& p) {
                          return is_float_type(p.key.dtype) && is_float_type(p.value.dtype) && is_float_type(p.layout.dtype) &&
                                 p.layout.dim % 2 == 0;
                        },
                        [](const ops::Executor& e, const WindowWriteParams& p) {
                          Arena plan;
                          const Angles angles(plan, p.rotary.theta, p.layout.dim, true);
                          plan.array<float>(e.pool().size() * (p.layout.kv_heads + 1) * p.layout.dim);
                          return plan.peak();
                        }};
  table.window_attend = {run_attend,
                         [](const WindowAttendParams& p) {
                           return is_float_type(p.q.dtype) && is_float_type(p.key.dtype) && is_float_type(p.value.dtype) &&
                                  is_float_type(p.layout.dtype) && is_float_type(p.out.dtype) && p.layout.dim % 2 == 0 &&
                                  p.heads % p.layout.kv_heads == 0;
                         },
                         [](const ops::Executor& e, const WindowAttendParams& p) {
                           Arena plan;
                           plan.array<std::byte>(e.pool().size() * AttendScratch::bytes(p));
                           plan.array<float>(p.batch.row_count * p.layout.dim);
                           const Angles angles(plan, p.rotary.theta, p.layout.dim, true);
                           return plan.peak();
                         }};
}

}  // namespace baton::cpu
