// Tuned kernels that have not been checked as ops on a device: experts in packed blocks, the router before them, dense products.
#include "ops/cuda/gemm/launch.h"
#include "ops/cuda/moe/op.h"
#include "ops/cuda/put_before.h"
#include "ops/cuda/register.h"

namespace baton::cuda {
namespace {

struct Experts {
  using Params = ops::MoeExpertsParams;
  static constexpr const char* kName = "moe_experts";
  static int64_t bytes(const Params& p) { return moe::workspace_bytes(p); }
  static cudaError_t run(const Params& p, void* memory, cudaStream_t s) { return moe::run(p, memory, true, s); }
};

struct Choose {
  using Params = ops::MoeRouteParams;
  static constexpr const char* kName = "moe_route";
  static bool takes(const Params& p) { return moe::supported(p); }
  static int64_t bytes(const Params&) { return 0; }
  static cudaError_t run(const Params& p, void*, cudaStream_t s) { return moe::run(p, false, s); }
};

struct Multiply {
  using Params = ops::GemmParams;
  static constexpr const char* kName = "gemm";
  static bool takes(const Params& p) { return gemm::supported(p); }
  static int64_t bytes(const Params& p) { return gemm::workspace_bytes(p); }
  static cudaError_t run(const Params& p, void* memory, cudaStream_t s) { return gemm::run(p, memory, s); }
};

struct MultiplyParts {
  using Params = ops::GemmBatchedParams;
  static constexpr const char* kName = "gemm_batched";
  static bool takes(const Params& p) { return gemm::supported(p); }
  static int64_t bytes(const Params&) { return 0; }
  static cudaError_t run(const Params& p, void*, cudaStream_t s) { return gemm::run(p, s); }
};

struct Gate {
  using Params = ops::GatedMlpParams;
  static constexpr const char* kName = "gated_mlp";
  static bool takes(const Params& p) { return gemm::supported(p); }
  static int64_t bytes(const Params& p) { return gemm::workspace_bytes(p); }
  static cudaError_t run(const Params& p, void* memory, cudaStream_t s) { return gemm::run(p, memory, s); }
};

}  // namespace

void register_unproven(ops::OpTable& table) {
  table.moe_experts = {run_tuned<Experts>, [](const Experts::Params& p) { return moe::supported(p); },
                       [](const ops::Executor&, const Experts::Params& p) { return padded(moe::workspace_bytes(p)); }};
  put_before<Choose>(table.moe_route);
  put_before<Multiply>(table.gemm);
  put_before<MultiplyParts>(table.gemm_batched);
  put_before<Gate>(table.gated_mlp);
}

}  // namespace baton::cuda
