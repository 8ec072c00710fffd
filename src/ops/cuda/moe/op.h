// The expert path as the op moe_experts, and the preparation of its weights; the router as moe_route.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "ops/moe.h"

namespace baton::cuda::moe {

// A layer's experts: types, sizes and places that the path takes. They lie at equal distances, as they do when they are loaded one after
// the other.
bool preparable(std::span<const ops::WeightView> gate, std::span<const ops::WeightView> up, std::span<const ops::WeightView> down,
                ops::ActivationQuant quant);
// Brings them into packed blocks (layout.h), each through `scratch`: the bytes of one matrix.
cudaError_t prepare(std::span<const ops::WeightView> gate, std::span<const ops::WeightView> up, std::span<const ops::WeightView> down,
                    void* scratch, cudaStream_t stream);

// Of experts that were prepared. run() neither allocates nor waits.
bool supported(const ops::MoeExpertsParams& p);
int64_t workspace_bytes(const ops::MoeExpertsParams& p);
cudaError_t run(const ops::MoeExpertsParams& p, void* workspace, bool dependent_launch, cudaStream_t stream);

// The arrays of slots are not written: only for assignments that leave them out.
bool supported(const ops::MoeRouteParams& p);
cudaError_t run(const ops::MoeRouteParams& p, bool dependent_launch, cudaStream_t stream);

}  // namespace baton::cuda::moe
