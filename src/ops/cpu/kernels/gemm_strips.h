// The strips of the vector instruction sets. Included only by kernel files.
#pragma once

#include "ops/cpu/kernels/gemm_kernels.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

void float_strip(const Strip& s);
void bf16_strip(const Strip& s);

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
