// KDA row by row: a block has one head of one sequence, its state in shared memory, a thread a column of values.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/plain/block.cuh"
#include "ops/cuda/plain/element.cuh"
#include "ops/cuda/plain/kda.h"
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/register.h"

namespace baton::cuda::plain {
namespace {

struct KdaArgs {
  const ops::SequenceRows* sequences;  // null: fold alone, of slot_ids
  const int32_t* slot_ids;
  const int32_t* fold_counts;
  int64_t fold_offset;  // where fold_counts is null: of the count in the slot; -1: nothing is folded
  ConstRows inputs, gate;
  Rows y;
  ops::KdaWeights w;
  std::byte* slots;
  int64_t slot_stride;
  ops::KdaSlotLayout layout;
  int32_t least_rows;  // sequences with fewer are left alone
};

struct HeadMemory {
  float *scratch, *state, *q, *k, *v, *decay, *o;
};

// Consecutive rows of q^ k^ v^ | a | b, from a launch or from the replay ring.
struct InputRows {
  const std::byte* data;
  int64_t stride;  // bytes
  int count;
};

class Head {
 public:
  __device__ Head(const KdaArgs& p, std::byte* slot, int head, const HeadMemory& m) : p_(p), slot_(slot), head_(head), m_(m) {}

  __device__ void load_state() {
    for (int i = thread(); i < dim() * dim(); i += kThreads) m_.state[i] = load(stored_state(), p_.layout.state_dtype, i);
    __syncthreads();
  }

  // y: first row of the launch, or -1: nobody looks at the results.
  __device__ void run(const InputRows& rows, int64_t y) {
    for (int t = 0; t < rows.count; ++t) {
      prepare(rows, t);
      advance();
      if (y >= 0) write(y + t);
    }
    __syncthreads();
  }

  // State, rounded as it is kept, and the last three rows.
  __device__ void commit(const InputRows& rows) {
    for (int i = thread(); i < dim() * dim(); i += kThreads) {
      m_.state[i] = rounded(m_.state[i], p_.layout.state_dtype);
      store(stored_state(), p_.layout.state_dtype, i, m_.state[i]);
    }
    for (int c = thread(); c < dim(); c += kThreads)
      for (int part = 0; part < 3; ++part) {
        float last[3];
        for (int i = 0; i < 3; ++i) last[i] = raw(rows, rows.count - 3 + i, part, c);
        for (int i = 0; i < 3; ++i) store(window(i), type(), part * width() + head_ * dim() + c, last[i]);
      }
    __syncthreads();
  }

  __device__ void record(const InputRows& rows) {
    const int64_t row_bytes = (4 * width() + p_.w.heads) * (type() == DType::kF32 ? 4 : 2);
    for (int t = 0; t < rows.count; ++t) {
      const std::byte* from = rows.data + t * rows.stride;
      std::byte* to = slot_ + p_.layout.ring_offset + t * row_bytes;
      for (int c = thread(); c < dim(); c += kThreads)
        for (int part = 0; part < 4; ++part) {
          const int64_t column = part * width() + head_ * dim() + c;
          store(to, type(), column, load(from, type(), column));
        }
      if (thread() == 0) store(to, type(), 4 * width() + head_, load(from, type(), 4 * width() + head_));
    }
  }

 private:
  __device__ int dim() const { return static_cast<int>(p_.w.dim); }
  __device__ int64_t width() const { return p_.w.heads * p_.w.dim; }
  __device__ DType type() const { return p_.layout.activation_dtype; }
  __device__ std::byte* window(int i) const { return slot_ + p_.layout.window_offset + i * 3 * width() * (type() == DType::kF32 ? 4 : 2); }
  __device__ std::byte* stored_state() const {
    return slot_ + p_.layout.state_offset + int64_t{head_} * dim() * dim() * (p_.layout.state_dtype == DType::kF32 ? 4 : 2);
  }
  // Row -3 ... -1 are the window's.
  __device__ float raw(const InputRows& rows, int t, int part, int c) const {
    const int64_t column = part * width() + head_ * dim() + c;
    return t < 0 ? load(window(t + 3), type(), column) : load(rows.data + t * rows.stride, type(), column);
  }

  __device__ void prepare(const InputRows& rows, int t) {
    float* const out[3] = {m_.q, m_.k, m_.v};
    const float rate = expf(p_.w.a_log[head_]);
    float squares[2] = {0, 0};
    for (int c = thread(); c < dim(); c += kThreads) {
      for (int part = 0; part < 3; ++part) {
        const float* taps = p_.w.conv + (part * width() + head_ * dim() + c) * 4;
        float sum = 0;
        for (int i = 0; i < 4; ++i) sum += taps[i] * raw(rows, t - 3 + i, part, c);
        out[part][c] = silu(sum);
        if (part < 2) squares[part] += out[part][c] * out[part][c];
      }
      const float a = load(rows.data + t * rows.stride, type(), 3 * width() + head_ * dim() + c);
      m_.decay[c] = expf(p_.w.lower_bound * sigmoid(rate * (a + p_.w.dt_bias[head_ * dim() + c])));
    }
    const float q_scale = 1.0F / sqrtf(static_cast<float>(dim())) / sqrtf(block_sum(squares[0], m_.scratch) + 1e-6F);
    const float k_scale = 1.0F / sqrtf(block_sum(squares[1], m_.scratch) + 1e-6F);
    for (int c = thread(); c < dim(); c += kThreads) {
      m_.q[c] *= q_scale;
      m_.k[c] *= k_scale;
    }
    beta_ = sigmoid(load(rows.data + t * rows.stride, type(), 4 * width() + head_));
    __syncthreads();
  }

  __device__ void advance() {
    for (int c = thread(); c < dim(); c += kThreads) {
      float read = 0;
      for (int i = 0; i < dim(); ++i) {
        float& s = m_.state[i * dim() + c];
        s *= m_.decay[i];
        read += s * m_.k[i];
      }
      const float delta = beta_ * (m_.v[c] - read);
      float sum = 0;
      for (int i = 0; i < dim(); ++i) {
        float& s = m_.state[i * dim() + c];
        s += m_.k[i] * delta;
        sum += s * m_.q[i];
      }
      m_.o[c] = sum;
    }
    __syncthreads();
  }

  __device__ void write(int64_t row) {
    const float factor = inverse_rms(m_.o, dim(), p_.w.norm_eps, m_.scratch);
    for (int c = thread(); c < dim(); c += kThreads)
      p_.y.put(row, head_ * dim() + c, m_.o[c] * factor * p_.w.o_norm[c] * sigmoid(p_.gate.at(row, head_ * dim() + c)));
  }

  const KdaArgs& p_;
  std::byte* slot_;
  int head_;
  HeadMemory m_;
  float beta_ = 0;
};

__global__ void __launch_bounds__(kThreads) kda_rows(KdaArgs p) {
  const int heads = static_cast<int>(p.w.heads);
  const int item = static_cast<int>(blockIdx.x) / heads;
  const int head = static_cast<int>(blockIdx.x) % heads;
  const int dim = static_cast<int>(p.w.dim);
  HeadMemory m{};
  m.scratch = shared_floats();
  m.state = m.scratch + kScratch;
  m.q = m.state + dim * dim;
  m.k = m.q + dim;
  m.v = m.k + dim;
  m.decay = m.v + dim;
  m.o = m.decay + dim;

  const int slot_id = p.sequences == nullptr ? p.slot_ids[item] : p.sequences[item].slot;
  if (slot_id < 0) return;
  std::byte* slot = p.slots + slot_id * p.slot_stride;
  int folded = 0;
  if (p.fold_counts != nullptr) {
    folded = p.fold_counts[item];
  } else if (p.fold_offset >= 0) {
    folded = *reinterpret_cast<const int32_t*>(slot + p.fold_offset);
  }
  const int count = p.sequences == nullptr ? 0 : p.sequences[item].row_count;
  if (count < p.least_rows) return;
  if (folded == 0 && count == 0) return;
  Head h(p, slot, head, m);
  h.load_state();
  if (folded > 0) {
    const int64_t row_bytes = (4 * p.w.heads * p.w.dim + p.w.heads) * (p.layout.activation_dtype == DType::kF32 ? 4 : 2);
    const InputRows ring{slot + p.layout.ring_offset, row_bytes, folded};
    h.run(ring, -1);
    h.commit(ring);
  }
  if (count == 0) return;
  const int64_t first = p.sequences[item].row_begin;
  const InputRows rows{p.inputs.row(first), p.inputs.stride, count};
  h.run(rows, first);
  if (p.sequences[item].verify != 0) {
    h.record(rows);
  } else {
    h.commit(rows);
  }
}

size_t kda_shared(int64_t dim) { return static_cast<size_t>(kScratch + dim * dim + 5 * dim) * sizeof(float); }
constexpr size_t kMostKdaShared = 200 << 10;

KdaArgs kda_args(const ops::KdaWeights& w, const ops::SlotPoolView& slots, const ops::KdaSlotLayout& layout) {
  KdaArgs a{};
  a.w = w;
  a.slots = slots.base;
  a.slot_stride = slots.stride;
  a.layout = layout;
  return a;
}

cudaError_t launch_kda(const KdaArgs& a, int64_t items, cudaStream_t s) {
  static const cudaError_t prepared = allow_shared(kda_rows, kMostKdaShared);
  if (prepared != cudaSuccess) return prepared;
  return launch(kda_rows, blocks_of(items * a.w.heads), kThreads, kda_shared(a.w.dim), 1, false, s, a);
}

KdaArgs rows_args(const ops::KdaParams& p) {
  KdaArgs a = kda_args(p.weights, p.slots, p.layout);
  a.sequences = p.batch.sequences;
  a.fold_offset = -1;
  a.inputs = rows_of(p.inputs);
  a.gate = rows_of(p.gate);
  a.y = rows_of(p.y);
  return a;
}

void run_kda(ops::Context& ctx, const ops::KdaParams& p) {
  KdaArgs a = rows_args(p);
  a.fold_counts = p.fold.counts;
  a.fold_offset = p.fold.slot_offset;
  launched(ctx, launch_kda(a, p.batch.sequence_count, stream(ctx)), "kda");
}

void run_kda_fold(ops::Context& ctx, const ops::KdaFoldParams& p) {
  KdaArgs a = kda_args(p.weights, p.slots, p.layout);
  a.slot_ids = p.slot_ids;
  a.fold_counts = p.counts;
  a.fold_offset = -1;
  launched(ctx, launch_kda(a, p.count, stream(ctx)), "kda_fold");
}

bool head_fits(const ops::KdaWeights& w, const ops::KdaSlotLayout& layout) {
  return kda_shared(w.dim) <= kMostKdaShared && is_float(layout.state_dtype) && is_float(layout.activation_dtype);
}

}  // namespace

cudaError_t run_folded_rows(const ops::KdaParams& p, int32_t least_rows, cudaStream_t s) {
  KdaArgs a = rows_args(p);
  a.least_rows = least_rows;
  return launch_kda(a, p.batch.sequence_count, s);
}

void register_kda(ops::OpTable& table) {
  table.kda = {run_kda,
               [](const ops::KdaParams& p) {
                 return head_fits(p.weights, p.layout) && p.inputs.dtype == p.layout.activation_dtype && is_float(p.gate.dtype) &&
                        is_float(p.y.dtype);
               },
               [](const ops::Executor&, const ops::KdaParams&) { return int64_t{0}; }};
  table.kda_fold = {run_kda_fold, [](const ops::KdaFoldParams& p) { return head_fits(p.weights, p.layout); },
                    [](const ops::Executor&, const ops::KdaFoldParams&) { return int64_t{0}; }};
}

}  // namespace baton::cuda::plain
