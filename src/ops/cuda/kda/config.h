// Which sizes the KDA kernels work on. Pure: no CUDA, tested on any machine.
#pragma once

#include <cstdint>

#include "ops/kda.h"

namespace baton::cuda::kda {

// Null where the kernels can run these params, else what they cannot do. Data pointers are not read.
const char* unsupported(const ops::KdaParams& params);
const char* unsupported(const ops::KdaFoldParams& params);

}  // namespace baton::cuda::kda
