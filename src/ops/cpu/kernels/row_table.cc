// Gathers the kernels of one instruction set.
#include "ops/cpu/kernels/row_kernels.h"
#include "ops/cpu/kernels/rows.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

extern const RowKernels kRowKernels;
const RowKernels kRowKernels = {
    .widen = widen,
    .narrow = narrow,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .add = add,
    .sum_squares = sum_squares,
    .max_abs = max_abs,
    .mhc_expand = mhc_expand,
    .mhc_collapse = mhc_collapse,
    .kda_conv = kda_conv,
    .l2_normalise = l2_normalise,
    .kda_decay = kda_decay,
    .kda_recur = kda_recur,
    .gated_norm = gated_norm,
    .index_scores = index_scores,
    .pool_keys = pool_keys,
    .hadamard = hadamard,
    .attend_block = attend_block,
    .clamped_swiglu = clamped_swiglu,
    .sigmoid = sigmoid_rows,
};

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
