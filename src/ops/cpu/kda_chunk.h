// The chunked form of the KDA recurrence: the same mathematics for a block of tokens at once, another order of sums.
#pragma once

#include <cstdint>

namespace baton::cpu {

int64_t kda_chunk_scratch_floats(int64_t max_tokens, int64_t dim);

// With G_i the sum of log decays of tokens 0 ... i, S the state at entry, and u the corrected values:
//   A_ij = beta_i sum_c k_i k_j exp(G_i - G_j), j < i;   (I + A) u = beta (v - (k exp G) S)
//   o_i = (q_i exp G_i) S + sum_{j <= i} (sum_c q_i k_j exp(G_i - G_j)) u_j;   S <- diag(exp G_last) S + sum_j (k_j exp(G_last - G_j)) u_j
// Exponents are differences, hence never positive. q, k, v, decay, o: [tokens, dim]; beta: [tokens]; state: [dim, dim].
void kda_chunk(float* state, int64_t dim, int64_t tokens, const float* q, const float* k, const float* v, const float* decay,
               const float* beta, float* o, float* scratch);

}  // namespace baton::cpu
