// The BF16 type of CUDA, on a CPU.
#pragma once

#include "emulated/simt.h"
#include "tensor/number.h"

using __nv_bfloat16 = baton::bf16;

inline float __bfloat162float(__nv_bfloat16 x) { return baton::to_float(x); }
inline __nv_bfloat16 __float2bfloat16(float x) { return baton::to_bf16(x); }
