// Ops of a block drafter: its window of keys and values, attention inside a block, the two-tap convolution, the path through candidates.
#include "ops/block_draft.h"

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/plain/block.cuh"
#include "ops/cuda/plain/element.cuh"
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/random.cuh"
#include "ops/cuda/plain/register.h"
#include "ops/cuda/plain/softmax.cuh"
#include "ops/window_attention.h"

namespace baton::cuda::plain {
namespace {

// x [dim] in shared memory <- rotary(RMSNorm(x)). In double: at a position of a million a float angle is off by a sixteenth.
__device__ void norm_and_rotate(float* x, int dim, const float* norm, float eps, float theta, int64_t position, float* scratch) {
  __syncthreads();
  const float factor = inverse_rms(x, dim, eps, scratch);
  const int half = dim / 2;
  for (int i = thread(); i < half; i += kThreads) {
    const double angle =
        static_cast<double>(position) * pow(static_cast<double>(theta), -static_cast<double>(i) / static_cast<double>(half));
    const auto cosine = static_cast<float>(cos(angle));
    const auto sine = static_cast<float>(sin(angle));
    const float a = x[i] * factor * norm[i];
    const float b = x[half + i] * factor * norm[half + i];
    x[i] = a * cosine - b * sine;
    x[half + i] = b * cosine + a * sine;
  }
  __syncthreads();
}

struct Ring {
  std::byte* slots;  // first slot, at the layer's ring
  int64_t slot_stride;
  int64_t width;  // kv_heads * dim
  int32_t window;
  DType type;
  __device__ std::byte* entry(int32_t slot, int64_t position) const {
    return slots + slot * slot_stride + position % window * 2 * width * (type == DType::kF32 ? 4 : 2);
  }
};
Ring ring_of(const ops::SlotPoolView& slots, const ops::WindowLayout& layout) {
  return {slots.base + layout.slot_offset, slots.stride, layout.kv_heads * layout.dim, layout.window, layout.dtype};
}

struct WriteArgs {
  ops::BatchView batch;
  const int32_t* counts;
  ConstRows key, value;
  const float* norm;
  float eps, theta;
  Ring ring;
  int32_t dim;
};

__global__ void __launch_bounds__(kThreads) write_window(WriteArgs p) {
  float* scratch = shared_floats();
  float* x = scratch + kScratch;
  const int64_t r = blockIdx.x;
  const int32_t q = p.batch.row_sequence[r];
  const ops::SequenceRows sequence = p.batch.sequences[q];
  const int64_t committed = p.counts == nullptr ? sequence.row_count : p.counts[q];
  const int64_t i = r - sequence.row_begin;
  if (i >= committed || i < committed - p.ring.window) return;
  std::byte* to = p.ring.entry(sequence.slot, p.batch.positions[r]);
  for (int64_t first = 0; first < p.ring.width; first += p.dim) {
    __syncthreads();
    for (int c = thread(); c < p.dim; c += kThreads) x[c] = p.key.at(r, first + c);
    norm_and_rotate(x, p.dim, p.norm, p.eps, p.theta, p.batch.positions[r], scratch);
    for (int c = thread(); c < p.dim; c += kThreads) {
      store(to, p.ring.type, first + c, x[c]);
      store(to, p.ring.type, p.ring.width + first + c, p.value.at(r, first + c));
    }
  }
}

struct WindowArgs {
  ops::BatchView batch;
  ConstRows q, key, value;
  const float* q_norm;
  const float* k_norm;
  float eps, theta;
  Ring ring;
  Rows out;
  int32_t dim, heads, share, block;  // share: query heads of a key head
};

struct WindowToken {
  const std::byte* entry;  // of the ring, or null:
  const float* own_key;    // a row of the block
  const ConstRows& values;
  int64_t row, column, width;
  DType type;
  __device__ float key(int c) const { return entry != nullptr ? load(entry, type, column + c) : own_key[c]; }
  __device__ float value(int c) const { return entry != nullptr ? load(entry, type, width + column + c) : values.at(row, column + c); }
};

__global__ void __launch_bounds__(kThreads) attend_window(WindowArgs p) {
  float* scratch = shared_floats();
  float* scores = scratch + kScratch;
  float* q = scores + kTokens;
  float* o = q + p.dim;
  float* keys = o + p.dim;  // [block, dim]
  const int64_t r = blockIdx.x / static_cast<unsigned>(p.heads);
  const int64_t head = blockIdx.x % static_cast<unsigned>(p.heads);
  const int64_t column = head / p.share * p.dim;
  const ops::SequenceRows sequence = p.batch.sequences[p.batch.row_sequence[r]];
  for (int c = thread(); c < p.dim; c += kThreads) q[c] = p.q.at(r, head * p.dim + c);
  norm_and_rotate(q, p.dim, p.q_norm, p.eps, p.theta, p.batch.positions[r], scratch);
  for (int j = 0; j < p.block; ++j) {
    const int64_t row = sequence.row_begin + j;
    for (int c = thread(); c < p.dim; c += kThreads) keys[j * p.dim + c] = p.key.at(row, column + c);
    norm_and_rotate(keys + j * p.dim, p.dim, p.k_norm, p.eps, p.theta, p.batch.positions[row], scratch);
  }
  const int length = sequence.position;
  const int first = length > p.ring.window ? length - p.ring.window : 0;
  const int context = length - first;
  const float scale = 1.0F / sqrtf(static_cast<float>(p.dim));
  attend_tokens(context + p.block, p.dim, scale, q, o, scores, [&](int i) {
    const bool before = i < context;
    return WindowToken{before ? p.ring.entry(sequence.slot, first + i) : nullptr,
                       before ? nullptr : keys + (i - context) * p.dim,
                       p.value,
                       sequence.row_begin + i - context,
                       column,
                       p.ring.width,
                       p.ring.type};
  });
  for (int c = thread(); c < p.dim; c += kThreads) p.out.put(r, head * p.dim + c, o[c]);
}

struct ConvArgs {
  ConstRows x, dynamic;
  const float* base;
  Rows y;
  int32_t d, groups, block;
};

__global__ void __launch_bounds__(kThreads) convolve_block(ConvArgs p) {
  const int64_t r = blockIdx.x;
  const int width = p.d / p.groups;
  for (int c = thread(); c < p.d; c += kThreads) {
    const float before = r % p.block == 0 ? 0.0F : p.x.at(r - 1, c);
    const float now = (p.base[c] + p.dynamic.at(r, c / width)) * p.x.at(r, c);
    p.y.put(r, c, now + (p.base[p.d + c] + p.dynamic.at(r, p.groups + c / width)) * before);
  }
}

struct PathArgs {
  ConstRows logits, hidden, predecessor, successor;
  int64_t predecessors;
  const int32_t* anchors;
  const ops::DraftPathRow* rows;
  int32_t* ids;
  int32_t* candidates;
  float* probabilities;
  int32_t steps, top, vocabulary, rank;
};

// Which candidate is drawn, and the probabilities of all; by one thread. Equal scores go to the earlier, more likely one.
__device__ int draw_candidate(const ops::DraftPathRow& row, uint32_t position, const int32_t* tokens, int count, const float* scores,
                              float* probabilities) {
  int best = 0;
  for (int i = 1; i < count; ++i)
    if (scores[i] > scores[best]) best = i;
  if (row.temperature <= 0) {
    for (int i = 0; i < count; ++i) probabilities[i] = i == best ? 1.0F : 0.0F;
    return best;
  }
  const auto scaled = [&](int i) {
    return (static_cast<double>(scores[i]) - static_cast<double>(scores[best])) / static_cast<double>(row.temperature);
  };
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += exp(scaled(i));
  int drawn = 0;
  double drawn_value = -static_cast<double>(infinity());
  for (int i = 0; i < count; ++i) {
    probabilities[i] = static_cast<float>(exp(scaled(i)) / sum);
    const auto u = static_cast<double>(unit_of_token(row.seed, static_cast<uint32_t>(tokens[i]), position, row.stream));
    const double value = scaled(i) - log(-log(u));
    if (value > drawn_value) {
      drawn_value = value;
      drawn = i;
    }
  }
  return drawn;
}

__global__ void __launch_bounds__(kThreads) walk_candidates(PathArgs p) {
  float* scratch = shared_floats();
  float* gate = scratch + kScratch;  // [rank]
  float* scores = gate + p.rank;     // [top], probabilities alike
  float* probabilities = scores + p.top;
  auto* tokens = reinterpret_cast<int32_t*>(probabilities + p.top);  // [top], then the draft before
  const int64_t block = blockIdx.x;
  const ops::DraftPathRow row = p.rows == nullptr ? ops::DraftPathRow{} : p.rows[block];
  if (thread() == 0) tokens[p.top] = p.anchors[block];
  for (int i = 0; i < p.steps; ++i) {
    const int64_t r = block * p.steps + i;
    const auto* logits = reinterpret_cast<const float*>(p.logits.row(r));
    int bad = 0;
    for (int c = thread(); c < p.vocabulary; c += kThreads) bad += fabsf(logits[c]) < infinity() ? 0 : 1;
    const bool finite = block_count(bad, scratch) == 0;
    const int count = !finite ? 0 : p.top < p.vocabulary ? p.top : p.vocabulary;
    Best last{infinity(), -1};
    for (int c = 0; c < count; ++c) {
      last = next_best(logits, p.vocabulary, last, scratch);
      if (thread() == 0) tokens[c] = last.index;
    }
    __syncthreads();
    const int32_t before = tokens[p.top];
    if (count > 0 && (before < 0 || before >= p.predecessors)) __trap();
    for (int j = thread(); count > 0 && j < p.rank; j += kThreads) gate[j] = p.hidden.at(r, j) * p.predecessor.at(before, j);
    __syncthreads();
    for (int c = warp(); c < count; c += kWarps) {
      double sum = 0;
      for (int j = lane(); j < p.rank; j += 32) sum += static_cast<double>(gate[j]) * static_cast<double>(p.successor.at(tokens[c], j));
#pragma unroll
      for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, bit);
      if (lane() == 0) scores[c] = static_cast<float>(static_cast<double>(logits[tokens[c]]) + sum);
    }
    __syncthreads();
    if (thread() == 0) {
      const int drawn = count > 0 ? draw_candidate(row, static_cast<uint32_t>(row.position + i), tokens, count, scores, probabilities) : 0;
      p.ids[r] = tokens[p.top] = count > 0 ? tokens[drawn] : 0;
    }
    __syncthreads();
    for (int c = thread(); c < p.top; c += kThreads) {
      if (p.candidates != nullptr) p.candidates[r * p.top + c] = c < count ? tokens[c] : -1;
      if (p.probabilities != nullptr) p.probabilities[r * p.top + c] = c < count ? probabilities[c] : 0.0F;
    }
    __syncthreads();
  }
}

constexpr size_t kMostDraftShared = 48 << 10;

void run_window_write(ops::Context& ctx, const ops::WindowWriteParams& p) {
  const WriteArgs a{p.batch,
                    p.counts,
                    rows_of(p.key),
                    rows_of(p.value),
                    p.norm,
                    p.eps,
                    p.rotary.theta,
                    ring_of(p.slots, p.layout),
                    static_cast<int32_t>(p.layout.dim)};
  const size_t shared = static_cast<size_t>(kScratch + p.layout.dim) * sizeof(float);
  launched(ctx, launch(write_window, blocks_of(p.batch.row_count), kThreads, shared, 1, false, stream(ctx), a), "window_write");
}

size_t window_shared(const ops::WindowAttendParams& p) {
  return static_cast<size_t>(kScratch + kTokens + (2 + p.block) * p.layout.dim) * sizeof(float);
}

void run_window_attend(ops::Context& ctx, const ops::WindowAttendParams& p) {
  BATON_CHECK(p.batch.row_count == p.batch.sequence_count * p.block);
  WindowArgs a{};
  a.batch = p.batch;
  a.q = rows_of(p.q);
  a.key = rows_of(p.key);
  a.value = rows_of(p.value);
  a.q_norm = p.q_norm;
  a.k_norm = p.k_norm;
  a.eps = p.eps;
  a.theta = p.rotary.theta;
  a.ring = ring_of(p.slots, p.layout);
  a.out = rows_of(p.out);
  a.dim = static_cast<int32_t>(p.layout.dim);
  a.heads = static_cast<int32_t>(p.heads);
  a.share = static_cast<int32_t>(p.heads / p.layout.kv_heads);
  a.block = static_cast<int32_t>(p.block);
  const unsigned blocks = blocks_of(p.batch.row_count * p.heads);
  launched(ctx, launch(attend_window, blocks, kThreads, window_shared(p), 1, false, stream(ctx), a), "window_attend");
}

void run_block_conv(ops::Context& ctx, const ops::BlockConvParams& p) {
  BATON_CHECK(p.x.rows % p.block == 0 && p.dynamic.cols == 2 * p.groups && p.y.data != p.x.data);
  const ConvArgs a{rows_of(p.x),
                   rows_of(p.dynamic),
                   p.base,
                   rows_of(p.y),
                   static_cast<int32_t>(p.x.cols),
                   static_cast<int32_t>(p.groups),
                   static_cast<int32_t>(p.block)};
  launched(ctx, launch(convolve_block, blocks_of(p.x.rows), kThreads, 0, 1, false, stream(ctx), a), "block_conv");
}

size_t path_shared(const ops::DraftPathParams& p) { return static_cast<size_t>(kScratch + p.hidden.cols + 3 * p.top + 1) * sizeof(float); }

void run_draft_path(ops::Context& ctx, const ops::DraftPathParams& p) {
  BATON_CHECK(p.logits.rows % p.steps == 0 && p.hidden.rows == p.logits.rows && p.successor.rows >= p.logits.cols);
  PathArgs a{};
  a.logits = rows_of(p.logits);
  a.hidden = rows_of(p.hidden);
  a.predecessor = rows_of(p.predecessor);
  a.successor = rows_of(p.successor);
  a.predecessors = p.predecessor.rows;
  a.anchors = p.anchors;
  a.rows = p.rows;
  a.ids = p.ids;
  a.candidates = p.candidates;
  a.probabilities = p.probabilities;
  a.steps = static_cast<int32_t>(p.steps);
  a.top = static_cast<int32_t>(p.top);
  a.vocabulary = static_cast<int32_t>(p.logits.cols);
  a.rank = static_cast<int32_t>(p.hidden.cols);
  const unsigned blocks = blocks_of(p.logits.rows / p.steps);
  launched(ctx, launch(walk_candidates, blocks, kThreads, path_shared(p), 1, false, stream(ctx), a), "draft_path");
}

}  // namespace

void register_drafter(ops::OpTable& table) {
  table.window_write = {run_window_write,
                        [](const ops::WindowWriteParams& p) {
                          return is_float(p.key.dtype) && is_float(p.value.dtype) && is_float(p.layout.dtype) && p.layout.dim % 2 == 0 &&
                                 p.layout.dim <= 8192;
                        },
                        [](const ops::Executor&, const ops::WindowWriteParams&) { return int64_t{0}; }};
  table.window_attend = {run_window_attend,
                         [](const ops::WindowAttendParams& p) {
                           return is_float(p.q.dtype) && is_float(p.key.dtype) && is_float(p.value.dtype) && is_float(p.layout.dtype) &&
                                  is_float(p.out.dtype) && p.layout.dim % 2 == 0 && p.heads % p.layout.kv_heads == 0 &&
                                  window_shared(p) <= kMostDraftShared;
                         },
                         [](const ops::Executor&, const ops::WindowAttendParams&) { return int64_t{0}; }};
  table.block_conv = {run_block_conv,
                      [](const ops::BlockConvParams& p) {
                        return is_float(p.x.dtype) && is_float(p.dynamic.dtype) && is_float(p.y.dtype) && p.groups > 0 &&
                               p.x.cols % p.groups == 0;
                      },
                      [](const ops::Executor&, const ops::BlockConvParams&) { return int64_t{0}; }};
  table.draft_path = {run_draft_path,
                      [](const ops::DraftPathParams& p) {
                        return p.logits.dtype == DType::kF32 && is_float(p.hidden.dtype) && is_float(p.predecessor.dtype) &&
                               is_float(p.successor.dtype) && p.top > 0 && p.steps > 0 && path_shared(p) <= kMostDraftShared;
                      },
                      [](const ops::Executor&, const ops::DraftPathParams&) { return int64_t{0}; }};
}

}  // namespace baton::cuda::plain
