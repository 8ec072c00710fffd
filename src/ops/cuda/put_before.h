// Puts a tuned kernel before the body that an op has. `Tuned` says for which params (takes), with how much workspace (bytes) and how (run):
// see tuned.cc.
#pragma once

#include <algorithm>

#include "ops/cuda/plain/op.h"

namespace baton::cuda {

// A workspace that `bytes` of the arena hold while `use` runs.
template <class Use>
cudaError_t with_workspace(ops::Context& ctx, int64_t bytes, const Use& use) {
  const int64_t mark = ctx.workspace->mark();
  void* memory = bytes > 0 ? ctx.workspace->allocate(bytes) : nullptr;
  const cudaError_t e = use(memory);
  ctx.workspace->release(mark);
  return e;
}

inline int64_t padded(int64_t bytes) { return align_up(bytes, kBufferAlignment); }

template <class Tuned>
void run_tuned(ops::Context& ctx, const typename Tuned::Params& p) {
  const auto run = [&](void* memory) { return Tuned::run(p, memory, plain::stream(ctx)); };
  plain::launched(ctx, with_workspace(ctx, Tuned::bytes(p), run), Tuned::kName);
}

// The entry that a tuned one falls back to.
template <class Tuned>
inline ops::Op<typename Tuned::Params> plain_of;

template <class Tuned>
void put_before(ops::Op<typename Tuned::Params>& entry) {
  using Params = typename Tuned::Params;
  plain_of<Tuned> = entry;
  entry.run = [](ops::Context& ctx, const Params& p) {
    if (!Tuned::takes(p)) return plain_of<Tuned>.run(ctx, p);
    run_tuned<Tuned>(ctx, p);
  };
  entry.supports = [](const Params& p) { return Tuned::takes(p) || plain_of<Tuned>.supports(p); };
  // Which of the two runs may depend on the number of rows, and a plan is made for the largest.
  entry.workspace_bytes = [](const ops::Executor& e, const Params& p) {
    const int64_t tuned = Tuned::takes(p) ? padded(Tuned::bytes(p)) : 0;
    return std::max(tuned, plain_of<Tuned>.supports(p) ? plain_of<Tuned>.workspace_bytes(e, p) : int64_t{0});
  };
}

}  // namespace baton::cuda
