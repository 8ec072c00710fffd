// Embedding, norms, dense products, experts and residual streams.
#include <array>

#include "backend/pair.h"

namespace baton::pair {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;
constexpr DType kFP8 = DType::kF8E4M3;

// Rows that are rounded to bf16 may fall to the other side of a tie; everything else differs by the order of sums.
double bound_of(DType out) { return out == kBF16 ? 4e-3 : 1e-5; }

void check_embedding(Pair& p) {
  for (const DType table : {kF32, kBF16})
    for (const DType out : {kF32, kBF16}) {
      p.name(fmt::format("embed {} to {}", dtype_name(table), dtype_name(out)));
      auto* ids = p.array<int32_t>(5);
      for (int i = 0; i < 5; ++i) ids[i] = p.below(17);
      const MatrixView rows = p.matrix(table, 17, 70);
      const MatrixView a = p.output(out, 5, 210);
      const MatrixView b = p.output(out, 5, 210);
      p.run(&ops::OpTable::embed, {.ids = ids, .table = rows, .streams = 3, .y = a}, {.ids = ids, .table = rows, .streams = 3, .y = b});
      p.same("rows", a, b, 0);

      p.name(fmt::format("rms_norm {} to {}", dtype_name(table), dtype_name(out)));
      const MatrixView x = p.matrix(table, 6, 300);
      const MatrixView sum = p.matrix(table, 6, 300);
      const MatrixView sum_b = p.copy(sum);
      const float* w = p.floats(300, 0.3F, 1);
      const MatrixView y = p.output(out, 6, 640);
      const MatrixView y_b = p.output(out, 6, 640);
      p.run(&ops::OpTable::rms_norm, {.x = x, .add_to = sum, .weight = w, .eps = 1e-5F, .y = y.columns(310, 300)},
            {.x = x, .add_to = sum_b, .weight = w, .eps = 1e-5F, .y = y_b.columns(310, 300)});
      p.same("sum", sum, sum_b, 0);
      p.same("norm", y.columns(310, 300), y_b.columns(310, 300), bound_of(out));
    }
}

void check_products(Pair& p) {
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape& s : {Shape{1, 40, 96}, Shape{5, 200, 130}, Shape{67, 150, 384}, Shape{64, 64, 32}})
    for (const DType x_type : {kF32, kBF16})
      for (const auto quant : {ops::ActivationQuant::kNone, ops::ActivationQuant::kE4m3Block}) {
        p.name(
            fmt::format("gemm {} rows of {} {}{}", s.m, s.k, dtype_name(x_type), quant == ops::ActivationQuant::kNone ? "" : " rounded"));
        const MatrixView x = p.matrix(x_type, s.m, s.k, 1, s.k + 8);
        const Weight w[] = {p.weight(kF32, s.n, s.k), p.weight(kBF16, s.n / 2, s.k), p.weight(kFP8, s.n, s.k)};
        const DType out = x_type;
        const MatrixView a = p.output(out, s.m, s.n), a2 = p.output(kF32, s.m, s.n / 2), a3 = p.output(out, s.m, s.n);
        const MatrixView b = p.output(out, s.m, s.n), b2 = p.output(kF32, s.m, s.n / 2), b3 = p.output(out, s.m, s.n);
        const ops::GemmOutput of_cpu[] = {{w[0].cpu, a}, {w[1].cpu, a2}, {w[2].cpu, a3}};
        const ops::GemmOutput of_device[] = {{w[0].device, b}, {w[1].device, b2}, {w[2].device, b3}};
        p.run(&ops::OpTable::gemm, {.x = x, .outputs = of_cpu, .quant = quant}, {.x = x, .outputs = of_device, .quant = quant});
        p.same("float weights", a, b, bound_of(out));
        p.same("bf16 weights", a2, b2, 1e-5);
        p.same("fp8 weights", a3, b3, bound_of(out));

        p.name("gated_mlp, " + std::string(dtype_name(x_type)));
        const Weight up = p.weight(kFP8, s.n, s.k);
        p.run(&ops::OpTable::gated_mlp, {.x = x, .gate = w[2].cpu, .up = up.cpu, .limit = 1.5F, .h = a, .quant = quant},
              {.x = x, .gate = w[2].device, .up = up.device, .limit = 1.5F, .h = b, .quant = quant});
        p.same("h", a, b, bound_of(out));
      }
  for (const DType type : {kF32, kBF16}) {
    p.name("gemm_batched " + std::string(dtype_name(type)));
    std::vector<ops::WeightView> cpu, device;
    for (int h = 0; h < 5; ++h) {
      if (h == 3) p.bytes(4096);  // not at equal distances
      const Weight w = p.weight(type, 24, 40);
      cpu.push_back(w.cpu);
      device.push_back(w.device);
    }
    const MatrixView x = p.matrix(type, 70, 200);
    const MatrixView a = p.output(type, 70, 120), b = p.output(type, 70, 120);
    p.run(&ops::OpTable::gemm_batched, {.x = x, .w = cpu, .y = a}, {.x = x, .w = device, .y = b});
    p.same("y", a, b, bound_of(type));
  }
}

struct Experts {
  std::vector<ops::WeightView> gate, up, down;
};

ops::ExpertAssignment assignment(Pair& p, int64_t m, int32_t experts, int32_t k) {
  return {p.array<int32_t>(m * k),
          p.array<float>(m * k),
          p.array<int32_t>(experts + 1),
          p.array<int32_t>(m * k),
          p.array<int32_t>(m * k),
          experts,
          k};
}

void check_expert_path(Pair& p, DType x_type, DType w_type, int64_t m, int32_t experts, int32_t k, ops::ActivationQuant quant) {
  const int64_t d = 160, inner = 72;
  p.name(fmt::format("moe {} rows, {} of {} experts, {} x {}", m, k, experts, dtype_name(x_type), dtype_name(w_type)));
  const MatrixView x = p.matrix(x_type, m, d);
  const Weight router = p.weight(w_type == kFP8 ? kBF16 : w_type, experts, d);
  const float* bias = p.floats(experts, 0.1F);
  const ops::ExpertAssignment a = assignment(p, m, experts, k), b = assignment(p, m, experts, k);
  const MatrixView scores = p.output(kF32, m, experts), scores_b = p.output(kF32, m, experts);
  const bool renormalise = k % 2 == 0;
  p.run(&ops::OpTable::moe_route,
        {.x = x, .router = router.cpu, .bias = bias, .renormalise = renormalise, .scaling = 2.5F, .scores = scores, .to = a},
        {.x = x, .router = router.device, .bias = bias, .renormalise = renormalise, .scaling = 2.5F, .scores = scores_b, .to = b});
  p.equal("ids", a.ids, b.ids, m * k);
  p.equal("offsets", a.offsets, b.offsets, experts + 1);
  p.equal("slot_row", a.slot_row, b.slot_row, m * k);
  p.equal("row_slot", a.row_slot, b.row_slot, m * k);
  p.same("weights", {a.weights, kF32, m, k, k}, {b.weights, kF32, m, k, k}, 1e-5);
  p.same("scores", scores, scores_b, 1e-5);

  Experts cpu, device;
  for (int32_t e = 0; e < experts; ++e) {
    const Weight w[] = {p.weight(w_type, inner, d), p.weight(w_type, inner, d), p.weight(w_type, d, inner)};
    cpu.gate.push_back(w[0].cpu), cpu.up.push_back(w[1].cpu), cpu.down.push_back(w[2].cpu);
    device.gate.push_back(w[0].device), device.up.push_back(w[1].device), device.down.push_back(w[2].device);
  }
  const MatrixView h = p.output(x_type, m * k, inner), h_b = p.output(x_type, m * k, inner);
  p.run(&ops::OpTable::moe_gate_up, {.x = x, .from = a, .gate = cpu.gate.data(), .up = cpu.up.data(), .limit = 1, .quant = quant, .h = h},
        {.x = x, .from = a, .gate = device.gate.data(), .up = device.up.data(), .limit = 1, .quant = quant, .h = h_b});
  p.same("h", h, h_b, bound_of(x_type));
  const MatrixView y = p.output(x_type, m * k, d), y_b = p.output(x_type, m * k, d);
  p.run(&ops::OpTable::moe_down, {.h = h, .from = a, .down = cpu.down.data(), .quant = quant, .y = y},
        {.h = h, .from = a, .down = device.down.data(), .quant = quant, .y = y_b});
  p.same("y", y, y_b, bound_of(x_type));
  const MatrixView shared = p.matrix(x_type, m, d);
  for (const bool with_shared : {true, false}) {
    const MatrixView out = p.output(x_type, m, d), out_b = p.output(x_type, m, d);
    const ConstMatrixView extra = with_shared ? ConstMatrixView(shared) : ConstMatrixView{};
    p.run(&ops::OpTable::moe_combine, {.y = y, .from = a, .shared = extra, .out = out}, {.y = y, .from = a, .shared = extra, .out = out_b});
    p.same("combined", out, out_b, bound_of(x_type));
  }
}

void check_hyper(Pair& p, DType type, DType fn_type, int64_t s, bool expanding) {
  const int64_t m = 5, d = 96;
  p.name(fmt::format("mhc {} streams of {}{}", s, dtype_name(type), expanding ? ", expanding" : ""));
  const MatrixView streams = p.matrix(type, m, s * d);
  const MatrixView streams_b = p.copy(streams);
  const MatrixView y = p.matrix(type, m, d);
  const Weight fn = p.weight(fn_type, (2 + s) * s, s * d);
  const float* base = p.floats((2 + s) * s, 0.5F);
  const float* scale = p.floats(3, 0.2F, 1);
  const float* norm = p.floats(d, 0.2F, 1);
  const ops::MhcCoefficients from{p.matrix(kF32, m, s), p.matrix(kF32, m, s * s, 0.3F)};
  const ops::MhcCoefficients a{p.copy(from.post), p.copy(from.comb)}, b{p.copy(from.post), p.copy(from.comb)};
  const MatrixView x = p.output(type, m, d), x_b = p.output(type, m, d);
  ops::MhcMixParams cpu;
  cpu.streams = streams;
  if (expanding) cpu.y = y;
  cpu.from = a;
  cpu.stream_count = s;
  cpu.fn = fn.cpu;
  cpu.base = base;
  cpu.scale = scale;
  cpu.norm_weight = norm;
  cpu.norm_eps = 1e-5F;
  cpu.hc_eps = 1e-6F;
  cpu.sinkhorn_iterations = 7;
  cpu.to = a;
  cpu.x = x;
  ops::MhcMixParams device = cpu;
  device.streams = streams_b;
  device.from = device.to = b;
  device.fn = fn.device;
  device.x = x_b;
  p.run(&ops::OpTable::mhc_mix, cpu, device);
  p.same("streams", streams, streams_b, bound_of(type));
  p.same("post", a.post, b.post, 1e-4);
  p.same("comb", a.comb, b.comb, 1e-4);
  p.same("x", x, x_b, bound_of(type));

  const ops::MhcExpandParams expand{.streams = streams, .y = y, .from = a, .stream_count = s};
  const MatrixView again = p.copy(streams);
  ops::MhcExpandParams expand_b = expand;
  expand_b.streams = again;
  p.run(&ops::OpTable::mhc_expand, expand, expand_b);
  p.same("expanded", streams, again, bound_of(type));
  const MatrixView h = p.output(type, m, d), h_b = p.output(type, m, d);
  p.run(&ops::OpTable::mhc_final, {.streams = streams, .stream_count = s, .norm_weight = norm, .norm_eps = 1e-5F, .h = h},
        {.streams = streams, .stream_count = s, .norm_weight = norm, .norm_eps = 1e-5F, .h = h_b});
  p.same("final", h, h_b, bound_of(type));
}

// A backend's own form of a layer's experts against the three ops of the CPU; and a few rows alone, to the bit.
void check_prepared_experts(Pair& p, int64_t m, int32_t experts, int32_t k, int64_t d, int64_t inner, bool with_shared) {
  constexpr auto kQuant = ops::ActivationQuant::kE4m3Block;
  p.name(fmt::format("prepared experts, {} rows, {} of {}, {} x {}", m, k, experts, inner, d));
  Experts cpu, device;
  const int64_t pitch = d * inner + align_up(d / 128 * (inner / 128) * 4, 256);
  std::byte* place = p.bytes(3 * experts * pitch);
  const auto weight = [&](int64_t rows, int64_t cols, std::vector<ops::WeightView>& of_cpu, std::vector<ops::WeightView>& of_device) {
    const Weight w = p.weight(kFP8, rows, cols, place);
    place += pitch;
    of_cpu.push_back(w.cpu), of_device.push_back(w.device);
  };
  for (int32_t e = 0; e < experts; ++e) {
    weight(inner, d, cpu.gate, device.gate);
    weight(inner, d, cpu.up, device.up);
    weight(d, inner, cpu.down, device.down);
  }
  if (!p.device().prepare_experts(device.gate, device.up, device.down, kQuant)) return;

  const MatrixView x = p.matrix(kBF16, m, d);
  const Weight router = p.weight(kBF16, experts, d);
  const float* bias = p.floats(experts, 0.1F);
  const ops::ExpertAssignment a = assignment(p, m, experts, k);
  ops::ExpertAssignment b = assignment(p, m, experts, k);
  b.offsets = b.slot_row = b.row_slot = nullptr;
  const MatrixView scores = p.output(kF32, m, experts), scores_b = p.output(kF32, m, experts);
  p.run(&ops::OpTable::moe_route, {.x = x, .router = router.cpu, .bias = bias, .scaling = 2.5F, .scores = scores, .to = a},
        {.x = x, .router = router.device, .bias = bias, .scaling = 2.5F, .scores = scores_b, .to = b});
  p.equal("ids", a.ids, b.ids, m * k);
  p.same("weights", {a.weights, kF32, m, k, k}, {b.weights, kF32, m, k, k}, 1e-5);
  p.same("scores", scores, scores_b, 1e-5);

  const MatrixView h = p.output(kBF16, m * k, inner), y = p.output(kBF16, m * k, d), out = p.output(kBF16, m, d);
  const ConstMatrixView shared = with_shared ? ConstMatrixView(p.matrix(kBF16, m, d)) : ConstMatrixView{};
  p.run_on_cpu(&ops::OpTable::moe_gate_up,
               {.x = x, .from = a, .gate = cpu.gate.data(), .up = cpu.up.data(), .limit = 1, .quant = kQuant, .h = h});
  p.run_on_cpu(&ops::OpTable::moe_down, {.h = h, .from = a, .down = cpu.down.data(), .quant = kQuant, .y = y});
  p.run_on_cpu(&ops::OpTable::moe_combine, {.y = y, .from = a, .shared = shared, .out = out});
  b.ids = a.ids, b.weights = a.weights;
  const auto on_device = [&](int64_t rows, const MatrixView& to) {
    p.run_on_device(&ops::OpTable::moe_experts, {.x = x.row_range(0, rows),
                                                 .from = b,
                                                 .gate = device.gate.data(),
                                                 .up = device.up.data(),
                                                 .down = device.down.data(),
                                                 .limit = 1,
                                                 .quant = kQuant,
                                                 .shared = shared.row_range(0, rows),
                                                 .out = to});
  };
  const MatrixView out_b = p.output(kBF16, m, d);
  on_device(m, out_b);
  // The CPU rounds h to bf16 before it rounds it to e4m3: a value in some tens falls to a neighbour.
  p.same("out", out, out_b, 2e-2);
  const int64_t few = std::min<int64_t>(m, 3);
  const MatrixView alone = p.output(kBF16, few, d);
  on_device(few, alone);
  p.equal("rows alone", alone.row<uint16_t>(0), out_b.row<uint16_t>(0), few * d);
}

void check_wide_products(Pair& p, int64_t m, int64_t n, int64_t k) {
  constexpr auto kQuant = ops::ActivationQuant::kE4m3Block;
  p.name(fmt::format("wide gemm, {} rows of {}, {} columns", m, k, n));
  const MatrixView x = p.matrix(kBF16, m, k, 1, k + 8);
  const Weight w[] = {p.weight(kBF16, n, k), p.weight(kBF16, 24, k), p.weight(kFP8, n, k)};
  const MatrixView a[] = {p.output(kBF16, m, n), p.output(kF32, m, 24), p.output(kBF16, m, n)};
  const MatrixView b[] = {p.output(kBF16, m, n), p.output(kF32, m, 24), p.output(kBF16, m, n)};
  const int64_t few = std::min<int64_t>(m, 3);
  const MatrixView c[] = {p.output(kBF16, few, n), p.output(kF32, few, 24), p.output(kBF16, few, n)};
  std::vector<ops::GemmOutput> of_cpu, of_device, of_few;
  for (size_t i = 0; i < 3; ++i) {
    of_cpu.push_back({w[i].cpu, a[i]});
    of_device.push_back({w[i].device, b[i]});
    of_few.push_back({w[i].device, c[i]});
  }
  p.run(&ops::OpTable::gemm, {.x = x, .outputs = of_cpu, .quant = kQuant}, {.x = x, .outputs = of_device, .quant = kQuant});
  p.same("bf16 weights", a[0], b[0], 4e-3);
  p.same("bf16 weights to float", a[1], b[1], 1e-5);
  p.same("fp8 weights", a[2], b[2], 4e-3);
  p.run_on_device(&ops::OpTable::gemm, {.x = x.row_range(0, few), .outputs = of_few, .quant = kQuant});
  p.equal("rows alone, bf16", b[0].row<uint16_t>(0), c[0].row<uint16_t>(0), few * n);
  p.equal("rows alone, fp8", b[2].row<uint16_t>(0), c[2].row<uint16_t>(0), few * n);

  p.name(fmt::format("wide gated_mlp, {} rows of {}, {} columns", m, k, n));
  const Weight up = p.weight(kFP8, n, k);
  p.run(&ops::OpTable::gated_mlp, {.x = x, .gate = w[2].cpu, .up = up.cpu, .limit = 1.5F, .h = a[0], .quant = kQuant},
        {.x = x, .gate = w[2].device, .up = up.device, .limit = 1.5F, .h = b[0], .quant = kQuant});
  p.same("h", a[0], b[0], 4e-3);
}

// Heads at equal distances, each weight beside another's.
void check_wide_heads(Pair& p, int64_t m, int64_t heads, int64_t n, int64_t k) {
  p.name(fmt::format("wide gemm_batched, {} rows, {} heads of {} x {}", m, heads, n, k));
  std::byte* place = p.bytes(heads * 2 * n * k * 2);
  std::vector<ops::WeightView> cpu, device;
  for (int64_t h = 0; h < heads; ++h, place += 2 * n * k * 2) {
    const Weight w = p.weight(kBF16, n, k, place);
    cpu.push_back(w.cpu);
    device.push_back(w.device);
  }
  const MatrixView x = p.matrix(kBF16, m, heads * k);
  const MatrixView a = p.output(kBF16, m, heads * n), b = p.output(kBF16, m, heads * n);
  p.run(&ops::OpTable::gemm_batched, {.x = x, .w = cpu, .y = a}, {.x = x, .w = device, .y = b});
  p.same("y", a, b, 4e-3);
}

}  // namespace

void check_matrices(Pair& p) {
  for (const int64_t m : {1, 64, 65, 130}) check_wide_products(p, m, 520, 384);
  check_wide_products(p, 300, 1536, 2048);
  check_wide_products(p, 7, 264, 16384);
  for (const int64_t m : {5, 200}) {
    check_wide_heads(p, m, 6, 512, 256);
    check_wide_heads(p, m, 6, 256, 512);
  }
  check_prepared_experts(p, 1, 32, 4, 512, 512, true);
  check_prepared_experts(p, 150, 32, 4, 1024, 512, true);  // 18 rows an expert: the medium form
  check_prepared_experts(p, 900, 32, 4, 512, 512, false);  // 112: the form for prompts
}

void check_dense(Pair& p) {
  check_embedding(p);
  check_products(p);
}

void check_experts(Pair& p) {
  constexpr auto kNone = ops::ActivationQuant::kNone;
  check_expert_path(p, kF32, kF32, 1, 9, 3, kNone);
  check_expert_path(p, kF32, kF32, 90, 5, 2, kNone);
  check_expert_path(p, kBF16, kBF16, 33, 40, 4, kNone);
  check_expert_path(p, kBF16, kFP8, 12, 6, 2, kNone);
  check_expert_path(p, kF32, kFP8, 70, 3, 3, ops::ActivationQuant::kE4m3Block);
}

void check_streams(Pair& p) {
  check_hyper(p, kF32, kF32, 4, true);
  check_hyper(p, kBF16, kF32, 4, true);
  check_hyper(p, kBF16, kBF16, 4, false);
  check_hyper(p, kF32, kF32, 1, true);
  check_hyper(p, kF32, kF32, 7, true);
}

}  // namespace baton::pair
