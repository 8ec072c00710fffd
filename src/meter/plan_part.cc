#include "meter/plan_part.h"

#include <cstdlib>
#include <string>

namespace baton::meter {
namespace {

// Of a product's shape (op_cost.cc): columns of its first weight, and k.
struct Size {
  int64_t n = 0, k = 0;
};
Size size_of(const std::string& shape) {
  const size_t x = shape.find(" x ");
  if (x == std::string::npos) return {};
  return {std::strtoll(shape.c_str(), nullptr, 10), std::strtoll(shape.c_str() + x + 3, nullptr, 10)};
}

std::string_view product_part(const Size& s, const model::Config& c) {
  const int64_t shared = c.moe_intermediate_size * c.shared_experts;
  if (s.n == c.vocab_size) return "head";
  if (s.n == c.kda_width() || s.k == c.kda_width()) return "kda_projections";
  if (s.n == c.q_lora_rank || s.k == c.q_lora_rank || s.k == c.heads * c.v_head_dim) return "mla_projections";
  if (s.k == c.intermediate_size) return "dense_mlp";
  if (shared > 0 && s.k == shared) return "moe_shared";
  return "";
}

}  // namespace

std::string_view plan_part(const OpRow& row, const model::Config& c, bool prefill) {
  const std::string_view op = row.op;
  if (op == "kda" || op == "kda_fold") return prefill ? "kda_chunk" : "kda_decode";
  if (op == "moe_experts" || op == "moe_gate_up" || op == "moe_down") return prefill ? "moe_prefill" : "moe_decode";
  if (op == "moe_combine") return "moe_rows";
  if (op == "moe_route") return "route";
  if (op == "mhc_mix" || op == "mhc_expand") return "mhc_mix";
  if (op == "mla_attend") return prefill ? "mla_prefill" : "mla_attend";
  if (op == "indexer_select") return prefill ? "indexer_prefill" : "indexer_select";
  if (op == "gemm_batched") return "mla_projections";
  if (op == "gemm") return product_part(size_of(row.shape), c);
  if (op == "gated_mlp") {
    const int64_t n = size_of(row.shape).n;
    if (n == c.intermediate_size) return "dense_mlp";
    if (n == c.moe_intermediate_size * c.shared_experts) return "moe_shared";
  }
  return "";
}

}  // namespace baton::meter
