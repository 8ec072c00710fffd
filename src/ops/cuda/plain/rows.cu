// Embedding and RMSNorm: a block a row.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/plain/block.cuh"
#include "ops/cuda/plain/element.cuh"
#include "ops/cuda/plain/op.h"
#include "ops/cuda/plain/register.h"

namespace baton::cuda::plain {
namespace {

struct EmbedArgs {
  const int32_t* ids;
  ConstRows table;
  Rows y;
  int64_t vocabulary;
  int32_t width, streams;
};

__global__ void __launch_bounds__(kThreads) embed(EmbedArgs p) {
  const int64_t r = blockIdx.x;
  const int32_t id = p.ids[r];
  if (id < 0 || id >= p.vocabulary) __trap();
  for (int c = thread(); c < p.width; c += kThreads) {
    const float x = p.table.at(id, c);
    for (int s = 0; s < p.streams; ++s) p.y.put(r, int64_t{s} * p.width + c, x);
  }
}

struct NormArgs {
  ConstRows x;
  Rows add_to;
  const float* weight;
  float eps;
  Rows y;
  int32_t width;
};

__global__ void __launch_bounds__(kThreads) rms_norm(NormArgs p) {
  auto* scratch = shared_floats();
  float* x = scratch + kScratch;
  const int64_t r = blockIdx.x;
  for (int c = thread(); c < p.width; c += kThreads) {
    x[c] = p.x.at(r, c);
    if (p.add_to.data != nullptr) {
      p.add_to.put(r, c, p.add_to.at(r, c) + x[c]);
      x[c] = p.add_to.at(r, c);
    }
  }
  if (p.y.data == nullptr) return;
  const float factor = inverse_rms(x, p.width, p.eps, scratch);
  for (int c = thread(); c < p.width; c += kThreads) p.y.put(r, c, x[c] * factor * p.weight[c]);
}

}  // namespace

void register_rows(ops::OpTable& table) {
  table.embed = {
      [](ops::Context& ctx, const ops::EmbedParams& p) {
        const EmbedArgs args{
            p.ids, rows_of(p.table), rows_of(p.y), p.table.rows, static_cast<int32_t>(p.table.cols), static_cast<int32_t>(p.streams)};
        launched(ctx, launch(embed, blocks_of(p.y.rows), kThreads, 0, 1, false, stream(ctx), args), "embed");
      },
      [](const ops::EmbedParams& p) { return is_float(p.table.dtype) && is_float(p.y.dtype); },
      [](const ops::Executor&, const ops::EmbedParams&) { return int64_t{0}; }};
  table.rms_norm = {[](ops::Context& ctx, const ops::RmsNormParams& p) {
                      const NormArgs args{rows_of(p.x), rows_of(p.add_to), p.weight, p.eps, rows_of(p.y), static_cast<int32_t>(p.x.cols)};
                      const size_t shared = (kScratch + static_cast<size_t>(p.x.cols)) * sizeof(float);
                      launched(ctx, launch(rms_norm, blocks_of(p.x.rows), kThreads, shared, 1, false, stream(ctx), args), "rms_norm");
                    },
                    [](const ops::RmsNormParams& p) { return is_float(p.x.dtype) && is_float(p.y.dtype) && p.x.cols <= 12000; },
                    [](const ops::Executor&, const ops::RmsNormParams&) { return int64_t{0}; }};
}

}  // namespace baton::cuda::plain
