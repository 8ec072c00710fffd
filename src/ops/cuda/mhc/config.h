// What the mHC kernels accept: four streams of 4,096 bf16 values. Pure: no CUDA, tested on any machine.
#pragma once

#include "ops/mhc.h"

namespace baton::cuda::mhc {

// Read no data pointer but that y may be empty.
bool supported(const ops::MhcMixParams& params);
bool supported(const ops::MhcExpandParams& params);
bool supported(const ops::MhcFinalParams& params);

}  // namespace baton::cuda::mhc
