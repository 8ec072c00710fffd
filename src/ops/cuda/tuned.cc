// Which ops run on tuned kernels, and for which params. What no tuned kernel takes goes to the plain body.
#include "ops/cuda/indexer/launch.h"
#include "ops/cuda/kda/config.h"
#include "ops/cuda/kda/decode_limits.h"
#include "ops/cuda/kda/op.h"
#include "ops/cuda/mhc/launch.h"
#include "ops/cuda/mla_sparse/launch.h"
#include "ops/cuda/plain/kda.h"
#include "ops/cuda/plain/op.h"
#include "ops/cuda/register.h"

namespace baton::cuda {
namespace {

using plain::launched;
using plain::stream;

// A workspace that `bytes` of the arena hold while `use` runs.
template <class Use>
cudaError_t with_workspace(ops::Context& ctx, int64_t bytes, const Use& use) {
  const int64_t mark = ctx.workspace->mark();
  void* memory = bytes > 0 ? ctx.workspace->allocate(bytes) : nullptr;
  const cudaError_t e = use(memory);
  ctx.workspace->release(mark);
  return e;
}

int64_t padded(int64_t bytes) { return align_up(bytes, kBufferAlignment); }

// Rows of one launch may not depend on each other (ops/README.md), so sparse attention is never split by the number of rows, and its kernel
// for many rows, which sums in another order, is not chosen.
struct Attend {
  using Params = ops::MlaAttendParams;
  static constexpr const char* kName = "mla_attend";
  static bool takes(const Params& p) { return mla::supported(p); }
  static int64_t bytes(const Params& p) { return mla::configure(p, 1).workspace_bytes; }
  static cudaError_t run(const Params& p, void* memory, cudaStream_t s) { return mla::attend(p, mla::configure(p, 1), memory, false, s); }
};

struct Select {
  using Params = ops::IndexerSelectParams;
  static constexpr const char* kName = "indexer_select";
  static bool takes(const Params& p) { return indexer::supported(p); }
  static int64_t bytes(const Params& p) { return indexer::configure(p, 132).workspace_bytes; }
  static cudaError_t run(const Params& p, void* memory, cudaStream_t s) {
    return indexer::select(p, indexer::configure(p, 132), memory, false, s);
  }
};

// Sequences of at most 8 rows run row by row on tuned kernels; longer ones in the chunked form where the caller allows it, else on the
// plain kernel. The first kernel folds what waits in the rings of all.
struct Recur {
  using Params = ops::KdaParams;
  static constexpr const char* kName = "kda";
  static bool takes(const Params& p) { return kda::unsupported(p) == nullptr; }
  static int64_t bytes(const Params& p) { return p.chunked ? kda::workspace_bytes(p) : 0; }
  static cudaError_t run(const Params& p, void* memory, cudaStream_t s) {
    if (p.chunked) return kda::run(p, memory, false, s);
    const cudaError_t e = kda::run_short(p, false, s);
    if (e != cudaSuccess || p.batch.row_count <= kda::kMaxTokens) return e;
    return plain::run_folded_rows(p, kda::kMaxTokens + 1, s);
  }
};

struct Fold {
  using Params = ops::KdaFoldParams;
  static constexpr const char* kName = "kda_fold";
  static bool takes(const Params& p) { return kda::unsupported(p) == nullptr; }
  static int64_t bytes(const Params&) { return 0; }
  static cudaError_t run(const Params& p, void*, cudaStream_t s) { return kda::run(p, false, s); }
};

struct Mix {
  using Params = ops::MhcMixParams;
  static constexpr const char* kName = "mhc_mix";
  static bool takes(const Params& p) { return mhc::supported(p); }
  static int64_t bytes(const Params&) { return 0; }
  static cudaError_t run(const Params& p, void*, cudaStream_t s) { return mhc::mix(p, {}, false, s); }
};

struct Expand {
  using Params = ops::MhcExpandParams;
  static constexpr const char* kName = "mhc_expand";
  static bool takes(const Params& p) { return mhc::supported(p); }
  static int64_t bytes(const Params&) { return 0; }
  static cudaError_t run(const Params& p, void*, cudaStream_t s) { return mhc::expand(p, false, s); }
};

struct Final {
  using Params = ops::MhcFinalParams;
  static constexpr const char* kName = "mhc_final";
  static bool takes(const Params& p) { return mhc::supported(p) && p.norm_weight != nullptr; }
  static int64_t bytes(const Params&) { return 0; }
  static cudaError_t run(const Params& p, void*, cudaStream_t s) { return mhc::final(p, false, s); }
};

// The plain entry that a tuned one falls back to.
template <class Tuned>
ops::Op<typename Tuned::Params> plain_of;

template <class Tuned>
void put_before(ops::Op<typename Tuned::Params>& entry) {
  using Params = typename Tuned::Params;
  plain_of<Tuned> = entry;
  entry.run = [](ops::Context& ctx, const Params& p) {
    if (!Tuned::takes(p)) return plain_of<Tuned>.run(ctx, p);
    launched(ctx, with_workspace(ctx, Tuned::bytes(p), [&](void* memory) { return Tuned::run(p, memory, stream(ctx)); }), Tuned::kName);
  };
  entry.supports = [](const Params& p) { return Tuned::takes(p) || plain_of<Tuned>.supports(p); };
  // Which of the two runs may depend on the number of rows, and a plan is made for the largest.
  entry.workspace_bytes = [](const ops::Executor& e, const Params& p) {
    const int64_t tuned = Tuned::takes(p) ? padded(Tuned::bytes(p)) : 0;
    return std::max(tuned, plain_of<Tuned>.supports(p) ? plain_of<Tuned>.workspace_bytes(e, p) : int64_t{0});
  };
}

}  // namespace

void register_tuned(ops::OpTable& table) {
  put_before<Attend>(table.mla_attend);
  put_before<Select>(table.indexer_select);
  put_before<Recur>(table.kda);
  put_before<Fold>(table.kda_fold);
  put_before<Mix>(table.mhc_mix);
  put_before<Expand>(table.mhc_expand);
  put_before<Final>(table.mhc_final);
}

}  // namespace baton::cuda
