#include "plan/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <cmath>

namespace baton::plan {
namespace {

namespace json = boost::json;

double number_of(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  const double x = v != nullptr && v->is_number() ? v->to_number<double>() : 0;
  return std::isfinite(x) ? x : 0;
}

std::string_view text_of(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v != nullptr && v->is_string() ? std::string_view(v->get_string()) : std::string_view();
}

// A share of nothing, which numbers at the ends of what a double holds would make, is no measurement.
void keep_best(Shares& shares, std::string_view op, double us, double floor_us) {
  const double share = std::min(1.0, floor_us / us);
  if (!(share > 0)) return;
  double& best = shares[std::string(op)];
  best = std::max(best, share);
}

// An op of the seam, and what a plan counts it as in a decode cycle and in a chunk of a prompt.
struct Name {
  std::string_view op, decode, prefill;
};
constexpr std::array<Name, 23> kNames{{{"kda", "kda_decode", "kda_chunk"},
                                       {"kda_fold", "kda_decode", ""},
                                       {"mla_attend", "mla_attend", "mla_prefill"},
                                       {"mla_attend_expanded", "", "mla_prefill"},
                                       {"indexer_select", "indexer_select", "indexer_prefill"},
                                       {"mhc_mix", "mhc_mix", "mhc_mix"},
                                       {"mhc_expand", "mhc_mix", "mhc_mix"},
                                       {"mhc_final", "mhc_mix", "mhc_mix"},
                                       {"moe_route", "route", "route"},
                                       {"moe_experts", "moe_decode", "moe_prefill"},
                                       {"moe_gate_up", "moe_decode", "moe_prefill"},
                                       {"moe_down", "moe_decode", "moe_prefill"},
                                       {"moe_combine", "moe_rows", "moe_rows"},
                                       {"gated_mlp", "dense_mlp", "dense_mlp"},
                                       {"gated_mlp", "moe_shared", "moe_shared"},
                                       {"gemm", "kda_projections", "kda_projections"},
                                       {"gemm", "mla_projections", "mla_projections"},
                                       {"gemm", "head", "head"},
                                       {"gemm_batched", "mla_projections", "mla_projections"},
                                       {"window_write", "drafter", ""},
                                       {"window_attend", "drafter", ""},
                                       {"block_conv", "drafter", ""},
                                       {"draft_path", "drafter", ""}}};

struct Sum {
  double us = 0, floor_us = 0;
};

// One point of a bench: a shape of a cycle with all its ops.
void take_point(const json::object& point, bool prefill, Shares& shares) {
  const json::value* ops = point.if_contains("ops");
  if (ops == nullptr || !ops->is_array()) return;
  std::map<std::string_view, Sum> sums;
  for (const json::value& value : ops->get_array()) {
    const json::object* o = value.if_object();
    if (o == nullptr) continue;
    const double us = number_of(*o, "us"), floor_us = number_of(*o, "floor_us");
    if (!(us > 0) || !(floor_us > 0)) continue;
    for (const Name& name : kNames) {
      const std::string_view as = prefill ? name.prefill : name.decode;
      if (name.op != text_of(*o, "op") || as.empty()) continue;
      sums[as].us += us;
      sums[as].floor_us += floor_us;
    }
  }
  for (const auto& [op, sum] : sums) keep_best(shares, op, sum.us, sum.floor_us);
}

Status take_bench(const json::object& bench, const std::string& where, Shares& shares) {
  const std::string_view kind = text_of(bench, "kind");
  const json::value* points = bench.if_contains("points");
  if ((kind != "decode" && kind != "prefill") || points == nullptr || !points->is_array())
    return Error{Error::Kind::kInvalid, where + " is not what bench cycle or bench prefill --json writes: it lacks \"kind\" or \"points\""};
  for (const json::value& point : points->get_array())
    if (point.is_object()) take_point(point.get_object(), kind == "prefill", shares);
  return {};
}

Result<Shares> of_bench(const json::object& bench, const std::string& where) {
  Shares shares;
  BATON_TRY(take_bench(bench, where, shares));
  if (shares.empty())
    return Error{Error::Kind::kInvalid, where + " holds no op with a floor; measure with --gpu and without --op-rounds 0"};
  return shares;
}

Result<Shares> of_lines(std::string_view text, const std::string& where) {
  Shares shares;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (!line.starts_with('{')) continue;
    boost::system::error_code error;
    const json::value value = json::parse(line, error);
    if (error) return Error{Error::Kind::kInvalid, fmt::format("{}: line {} is not JSON: {}", where, number, error.message())};
    if (!value.is_object()) continue;
    const json::object& o = value.get_object();
    if (const json::value* bench = o.if_contains("result"); bench != nullptr && bench->is_object()) {
      BATON_TRY(take_bench(bench->get_object(), fmt::format("{}: line {}", where, number), shares));
      continue;
    }
    const std::string_view op = text_of(o, "op");
    const double us = number_of(o, "us"), floor = number_of(o, "floor_us");
    if (op.empty() || !(us > 0) || !(floor > 0)) continue;
    if (floor > us * 1.02)
      return Error{Error::Kind::kInvalid,
                   fmt::format("{}: line {}: {} us are less than the floor of {} us; one of them is wrong", where, number, us, floor)};
    keep_best(shares, op, us, floor);
  }
  if (shares.empty())
    return Error{
        Error::Kind::kInvalid,
        fmt::format("{} holds no measurement: no line is a JSON object with \"op\", \"us\" and \"floor_us\"; see bench/gpu", where)};
  return shares;
}

}  // namespace

Result<Shares> parse_measurements(std::string_view text, const std::string& where) {
  boost::system::error_code error;
  const json::value whole = json::parse(text, error);
  if (!error && whole.is_object() && whole.get_object().contains("points")) return of_bench(whole.get_object(), where);
  return of_lines(text, where);
}

}  // namespace baton::plan
