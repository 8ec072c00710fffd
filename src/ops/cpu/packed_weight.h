// Brings weights into the CPU's order.
#pragma once

#include "ops/cpu/packed_layout.h"
#include "tensor/view.h"

namespace baton::cpu {

// Writes a row-major matrix [n, k] (of any alignment, kF32, kBF16 or kF8E4M3) in this order. Thread-safe for distinct destinations.
void pack(ConstMatrixView host, void* destination);

}  // namespace baton::cpu
