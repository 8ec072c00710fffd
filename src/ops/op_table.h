// The seam between the model and the devices: one typed function pointer per op, filled by a backend.
//
// To add an op: its params struct in the family's header, an entry here, the CPU body with its test; then the CUDA body. The model may call
// an op once the CPU body and its test exist.
#pragma once

#include <cstdint>
#include <span>

#include "ops/block_draft.h"
#include "ops/embed.h"
#include "ops/gemm.h"
#include "ops/head.h"
#include "ops/indexer.h"
#include "ops/kda.h"
#include "ops/mhc.h"
#include "ops/mla_sparse.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/window_attention.h"
#include "tensor/buffer.h"

namespace baton::ops {

inline constexpr int64_t kStoreRows = 128;  // see Backend::store_weight

// The backend's own execution state: the thread pool of the CPU, the stream of a GPU.
class Executor;

struct Context {
  Executor* executor = nullptr;
  Arena* workspace = nullptr;  // scratch of the running op; released when run() returns
};

// run() trusts its params: shapes that do not fit are defects and stop the process. It neither allocates nor waits for the device.
template <class Params>
struct Op {
  void (*run)(Context&, const Params&) = nullptr;
  bool (*supports)(const Params&) = nullptr;
  // Upper bound for these sizes on this executor (its thread count matters on the CPU); reads no data pointer.
  int64_t (*workspace_bytes)(const Executor&, const Params&) = nullptr;
};

struct OpTable {
  Op<EmbedParams> embed;
  Op<RmsNormParams> rms_norm;
  Op<GemmParams> gemm;
  Op<GemmBatchedParams> gemm_batched;
  Op<GatedMlpParams> gated_mlp;
  Op<MhcMixParams> mhc_mix;
  Op<MhcExpandParams> mhc_expand;
  Op<MhcFinalParams> mhc_final;
  Op<KdaParams> kda;
  Op<KdaFoldParams> kda_fold;
  Op<LatentWriteParams> latent_write;
  Op<IndexerKeysParams> indexer_keys;
  Op<IndexerSelectParams> indexer_select;
  Op<MlaAttendParams> mla_attend;
  Op<MlaAttendExpandedParams> mla_attend_expanded;
  Op<MoeRouteParams> moe_route;
  Op<MoeGateUpParams> moe_gate_up;
  Op<MoeDownParams> moe_down;
  Op<MoeCombineParams> moe_combine;
  Op<MoeExpertsParams> moe_experts;  // of backends that prepare experts; elsewhere empty
  Op<SampleParams> sample;
  Op<WindowWriteParams> window_write;
  Op<WindowAttendParams> window_attend;
  Op<BlockConvParams> block_conv;
  Op<DraftPathParams> draft_path;
};

// One device as the model sees it: its ops, its memory, and the order in which it keeps weights.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const OpTable& ops() const = 0;
  virtual Executor& executor() = 0;
  // Zero-filled device memory.
  virtual Result<Buffer> allocate(int64_t bytes) = 0;
  // Ordered with the ops of the executor.
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
  virtual void copy_on_device(void* to, const void* from, int64_t bytes) = 0;
  virtual void clear_on_device(void* device, int64_t bytes) = 0;  // to zero
  virtual void synchronize() = 0;
  // Bytes of a weight matrix in this backend's order, scales excluded.
  virtual int64_t weight_bytes(DType dtype, int64_t n, int64_t k) const = 0;
  // Writes a row-major host matrix [n, k] in this backend's order to `device`. Thread-safe for distinct destinations.
  // Rows from a multiple i of kStoreRows on may be stored apart, at weight_bytes(dtype, i, k) behind the first.
  virtual void store_weight(void* device, ConstMatrixView host) = 0;
  // Brings the experts of a layer, which have been stored, into the order that moe_experts reads: in place, once. False: they were left as
  // they are, and gate-up, down and combine run one by one. Spans: [experts]. Not beside store_weight().
  virtual bool prepare_experts(std::span<const WeightView> /*gate*/, std::span<const WeightView> /*up*/,
                               std::span<const WeightView> /*down*/, ActivationQuant) {
    return false;
  }
};

}  // namespace baton::ops
