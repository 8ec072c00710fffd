// Which ops run on tuned kernels, and for which params. What no tuned kernel takes goes to the plain body.
#include "ops/cuda/indexer/launch.h"
#include "ops/cuda/kda/config.h"
#include "ops/cuda/kda/decode_limits.h"
#include "ops/cuda/kda/op.h"
#include "ops/cuda/mhc/launch.h"
#include "ops/cuda/mla_sparse/launch.h"
#include "ops/cuda/plain/kda.h"
#include "ops/cuda/put_before.h"
#include "ops/cuda/register.h"

namespace baton::cuda {
namespace {

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
