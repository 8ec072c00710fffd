// Reading one latent row of a page as floats.
#pragma once

#include "ops/cpu/kernels/row_kernels.h"
#include "ops/mla_sparse.h"

namespace baton::cpu {

void read_latent(const RowKernels& kernels, const ops::LatentLayout& layout, const std::byte* from, float* c);

}  // namespace baton::cpu
