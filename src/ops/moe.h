// Mixture of experts: route, grouped gate-up with SwiGLU, grouped down, combine.
//
// Rows are sorted by expert ("slots": one per row and choice); within an expert they keep the order of the rows.
//
// A backend may keep the experts of a layer in an order of its own (Backend::prepare_experts). Then they are for moe_experts alone, which
// is gate-up, down and combine in one and sorts for itself; everywhere else the three ops run, and are what moe_experts is compared with.
#pragma once

#include <cstdint>

#include "ops/weight.h"
#include "tensor/view.h"

namespace baton::ops {

inline constexpr int64_t kMaxExpertsPerToken = 64;

struct ExpertAssignment {
  int32_t* ids = nullptr;       // [m, k] chosen experts, by descending biased score, ties to the lower id
  float* weights = nullptr;     // [m, k]
  int32_t* offsets = nullptr;   // [experts + 1] first slot of each expert; null: the three arrays of slots are not wanted
  int32_t* slot_row = nullptr;  // [m * k] row of each slot
  int32_t* row_slot = nullptr;  // [m, k] slot of each choice
  int32_t experts = 0;
  int32_t k = 0;
};

// s = sigmoid(x router^T) in float; the k experts with the largest s + bias; weight = scaling * s / (sum of chosen s + 1e-20) when
// renormalise, else scaling * s. The bias only chooses.
struct MoeRouteParams {
  ConstMatrixView x{};          // [m, d]
  WeightView router{};          // [experts, d], kF32 or kBF16
  const float* bias = nullptr;  // [experts]
  bool renormalise = true;
  float scaling = 1;
  MatrixView scores{};  // [m, experts] kF32 scratch; holds sigmoid scores afterwards
  ExpertAssignment to{};
};

// h[slot] = silu(min(gate, limit)) * clamp(up, +-limit) of the slot's row and expert.
struct MoeGateUpParams {
  ConstMatrixView x{};  // [m, d]
  ExpertAssignment from{};
  const WeightView* gate = nullptr;  // [experts] of [i, d]
  const WeightView* up = nullptr;    // [experts] of [i, d]
  float limit = 0;
  ActivationQuant quant = ActivationQuant::kNone;
  MatrixView h{};  // [m * k, i], dtype of x
};

// y[slot] = h[slot] down_e^T
struct MoeDownParams {
  ConstMatrixView h{};  // [m * k, i]
  ExpertAssignment from{};
  const WeightView* down = nullptr;  // [experts] of [d, i]
  ActivationQuant quant = ActivationQuant::kNone;
  MatrixView y{};  // [m * k, d], kF32 or kBF16
};

// out[r] = shared[r] + sum_j weights[r, j] * y[slot(r, j)], in float, in the order of the choices; one rounding.
struct MoeCombineParams {
  ConstMatrixView y{};  // [m * k, d]
  ExpertAssignment from{};
  ConstMatrixView shared{};  // [m, d], or empty
  MatrixView out{};          // [m, d]
};

// The three above in one, of experts that were prepared: h and y stay inside, in whatever form. Reads ids and weights of the assignment.
struct MoeExpertsParams {
  ConstMatrixView x{};  // [m, d]
  ExpertAssignment from{};
  const WeightView* gate = nullptr;  // [experts] of [i, d]
  const WeightView* up = nullptr;    // [experts] of [i, d]
  const WeightView* down = nullptr;  // [experts] of [d, i]
  float limit = 0;
  ActivationQuant quant = ActivationQuant::kNone;
  ConstMatrixView shared{};  // [m, d], or empty
  MatrixView out{};          // [m, d]
};

}  // namespace baton::ops
