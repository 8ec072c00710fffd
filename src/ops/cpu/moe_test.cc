// The expert ops: routing against a plain sort, experts against dense products bit by bit, and the whole against double.
#include <numeric>

#include "ops/cpu/weight_test_support.h"

namespace baton::cpu::testing {
namespace {

using ops::ActivationQuant;
using ops::ExpertAssignment;
using ops::GemmOutput;

// The arrays behind an assignment.
struct Assignment {
  std::vector<int32_t> ids, offsets, slot_row, row_slot;
  std::vector<float> weights;
  int32_t experts;
  int32_t k;
  Assignment(int64_t m, int32_t experts_, int32_t k_)
      : ids(static_cast<size_t>(m * k_)), offsets(static_cast<size_t>(experts_ + 1)), slot_row(ids.size()), row_slot(ids.size()),
        weights(ids.size()), experts(experts_), k(k_) {}
  ExpertAssignment view() { return {ids.data(), weights.data(), offsets.data(), slot_row.data(), row_slot.data(), experts, k}; }
};

Assignment route(OpRunner& runner, TestMatrix& x, const TestWeight& router, const std::vector<float>& bias, int32_t k,
                 bool renormalise = true) {
  Assignment to(x.rows, static_cast<int32_t>(router.host.rows), k);
  std::vector<float> scores(static_cast<size_t>(x.rows * router.host.rows));
  runner.run(runner.ops().moe_route, ops::MoeRouteParams{.x = x.view(),
                                                         .router = router.view(),
                                                         .bias = bias.data(),
                                                         .renormalise = renormalise,
                                                         .scaling = 2.5F,
                                                         .scores = {scores.data(), DType::kF32, x.rows, router.host.rows, router.host.rows},
                                                         .to = to.view()});
  return to;
}

void check_sorted(const Assignment& a, int64_t m) {
  ASSERT_EQ(a.offsets.front(), 0);
  ASSERT_EQ(a.offsets.back(), m * a.k);
  for (int32_t e = 0; e < a.experts; ++e) {
    for (int32_t s = a.offsets[static_cast<size_t>(e)]; s < a.offsets[static_cast<size_t>(e) + 1]; ++s) {
      const int32_t row = a.slot_row[static_cast<size_t>(s)];
      if (s > a.offsets[static_cast<size_t>(e)]) {
        ASSERT_LT(a.slot_row[static_cast<size_t>(s) - 1], row);
      }
      bool found = false;
      for (int32_t j = 0; j < a.k; ++j) {
        const auto i = static_cast<size_t>(row * a.k + j);
        if (a.ids[i] != e) continue;
        found = true;
        ASSERT_EQ(a.row_slot[i], s);
      }
      ASSERT_TRUE(found);
    }
  }
}

TEST(MoeRoute, ChoosesTheBestBiasedScores) {
  for (const Isa isa : machine_isas()) {
    OpRunner runner(isa);
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const auto& [experts, k] : std::vector<std::pair<int32_t, int32_t>>{{16, 4}, {5, 5}, {33, 1}, {288, 8}}) {
        for (const int64_t m : {0, 1, 3, 70}) {
          Random random(static_cast<uint32_t>(experts * 100 + m));
          TestMatrix x(type, m, 96, random.normal(m * 96));
          const TestWeight router(random, DType::kF32, experts, 96);
          const std::vector<float> bias = random.normal(experts, 0.1F);
          for (const bool renormalise : {true, false}) {
            const Assignment a = route(runner, x, router, bias, k, renormalise);
            check_sorted(a, m);
            const std::vector<double> logits = product(x, router, ActivationQuant::kNone);
            for (int64_t r = 0; r < m; ++r) {
              std::vector<double> score;
              for (int32_t e = 0; e < experts; ++e) score.push_back(1 / (1 + std::exp(-logits[static_cast<size_t>(r * experts + e)])));
              const auto biased = [&](int32_t e) { return score[static_cast<size_t>(e)] + bias[static_cast<size_t>(e)]; };
              const int32_t* ids = &a.ids[static_cast<size_t>(r * k)];
              double sum = 0;
              double weakest = INFINITY;
              std::vector<bool> chosen(static_cast<size_t>(experts));
              for (int32_t j = 0; j < k; ++j) {
                EXPECT_LT(biased(ids[j]), weakest + 1e-6);
                weakest = std::min(weakest, biased(ids[j]));
                EXPECT_FALSE(chosen[static_cast<size_t>(ids[j])]);
                chosen[static_cast<size_t>(ids[j])] = true;
                sum += score[static_cast<size_t>(ids[j])];
              }
              for (int32_t e = 0; e < experts; ++e) {
                if (!chosen[static_cast<size_t>(e)]) {
                  EXPECT_LT(biased(e), weakest + 1e-6);
                }
              }
              for (int32_t j = 0; j < k; ++j) {
                const double expected = 2.5 * score[static_cast<size_t>(ids[j])] / (renormalise ? sum : 1);
                EXPECT_NEAR(a.weights[static_cast<size_t>(r * k + j)], expected, 1e-5);
              }
            }
          }
        }
      }
    }
  }
}

TEST(MoeRoute, TiesGoToTheLowerExpert) {
  for (const Isa isa : machine_isas()) {
    OpRunner runner(isa);
    Random random(1);
    TestMatrix x(DType::kF32, 2, 32, std::vector<float>(64));  // all scores are 1/2
    const TestWeight router(random, DType::kF32, 8, 32);
    EXPECT_EQ(route(runner, x, router, std::vector<float>(8), 4).ids, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(route(runner, x, router, {0, 0, 1, 0, 0, 2, 1, 0}, 4).ids, (std::vector<int32_t>{5, 2, 6, 0, 5, 2, 6, 0}));
  }
}

struct Experts {
  std::vector<TestWeight> gate, up, down;
  std::vector<ops::WeightView> gate_views, up_views, down_views;
  Experts(Random& random, DType type, int32_t experts, int64_t d, int64_t inner) {
    for (int32_t e = 0; e < experts; ++e) {
      gate.emplace_back(random, type, inner, d);
      up.emplace_back(random, type, inner, d);
      down.emplace_back(random, type, d, inner);
    }
    for (const TestWeight& w : gate) gate_views.push_back(w.view());
    for (const TestWeight& w : up) up_views.push_back(w.view());
    for (const TestWeight& w : down) down_views.push_back(w.view());
  }
};

// The expert ops give each slot the very bits that the dense ops give its row alone.
TEST(MoeExperts, AreDenseProductsOfTheirRows) {
  struct Types {
    DType x;
    DType w;
    ActivationQuant quant;
  };
  for (const Isa isa : machine_isas()) {
    for (const Types& t :
         {Types{DType::kF32, DType::kF32, ActivationQuant::kNone}, Types{DType::kBF16, DType::kBF16, ActivationQuant::kNone},
          Types{DType::kF32, DType::kBF16, ActivationQuant::kNone}, Types{DType::kBF16, DType::kF8E4M3, ActivationQuant::kNone},
          Types{DType::kBF16, DType::kF8E4M3, ActivationQuant::kE4m3Block},
          Types{DType::kF32, DType::kF8E4M3, ActivationQuant::kE4m3Block}}) {
      for (const int64_t d : {144, 160}) {
        SCOPED_TRACE(fmt::format("{} x {} on {}, width {}", dtype_name(t.x), dtype_name(t.w), isa_name(isa), d));
        const int64_t inner = 72;
        const int32_t k = 3;
        Random random(static_cast<uint32_t>(d));
        const Experts experts(random, t.w, 6, d, inner);
        const TestWeight router(random, DType::kF32, 6, d);
        const std::vector<float> bias{0.3F, 0, 0, -0.3F, 0, -5};  // the last gets no rows
        for (const int threads : {1, 2, 3}) {
          OpRunner runner(isa, threads);
          for (const int64_t m : {0, 1, 2, 40, 200}) {
            if (isa == Isa::kPlain && m > 40) continue;
            TestMatrix x(t.x, m, d, random.normal(m * d));
            Assignment a = route(runner, x, router, bias, k);
            TestMatrix h(t.x, m * k, inner, std::vector<float>(static_cast<size_t>(m * k * inner)));
            runner.run(runner.ops().moe_gate_up, ops::MoeGateUpParams{.x = x.view(),
                                                                      .from = a.view(),
                                                                      .gate = experts.gate_views.data(),
                                                                      .up = experts.up_views.data(),
                                                                      .limit = 1.0F,
                                                                      .quant = t.quant,
                                                                      .h = h.view()});
            TestMatrix y(t.x, m * k, d, std::vector<float>(static_cast<size_t>(m * k * d)));
            runner.run(
                runner.ops().moe_down,
                ops::MoeDownParams{.h = h.view(), .from = a.view(), .down = experts.down_views.data(), .quant = t.quant, .y = y.view()});
            TestMatrix row_h(t.x, 1, inner, std::vector<float>(static_cast<size_t>(inner)));
            TestMatrix row_y(t.x, 1, d, std::vector<float>(static_cast<size_t>(d)));
            const std::vector<float> all_h = h.read();
            const std::vector<float> all_y = y.read();
            for (int64_t i = 0; i<m * k; i += m> 40 ? 7 : 1) {
              const int32_t e = a.ids[static_cast<size_t>(i)];
              const int64_t slot = a.row_slot[static_cast<size_t>(i)];
              runner.run(runner.ops().gated_mlp, ops::GatedMlpParams{.x = x.view().row_range(i / k, 1),
                                                                     .gate = experts.gate_views[static_cast<size_t>(e)],
                                                                     .up = experts.up_views[static_cast<size_t>(e)],
                                                                     .limit = 1.0F,
                                                                     .h = row_h.view(),
                                                                     .quant = t.quant});
              ASSERT_EQ(row_h.read(), std::vector<float>(all_h.begin() + slot * inner, all_h.begin() + (slot + 1) * inner)) << "m=" << m;
              const GemmOutput out{experts.down_views[static_cast<size_t>(e)], row_y.view()};
              runner.run(runner.ops().gemm, ops::GemmParams{.x = h.view().row_range(slot, 1), .outputs = {&out, 1}, .quant = t.quant});
              ASSERT_EQ(row_y.read(), std::vector<float>(all_y.begin() + slot * d, all_y.begin() + (slot + 1) * d)) << "m=" << m;
            }
          }
        }
      }
    }
  }
}

TEST(MoeCombine, AddsWeightedSlots) {
  for (const Isa isa : machine_isas()) {
    OpRunner runner(isa);
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const bool with_shared : {true, false}) {
        for (const int64_t d : {24, 512, 1100}) {
          Random random(static_cast<uint32_t>(d));
          const int64_t m = 30;
          const int32_t k = 4;
          Assignment a(m, 8, k);
          std::iota(a.row_slot.begin(), a.row_slot.end(), 0);
          for (size_t i = a.row_slot.size() - 1; i > 0; --i)
            std::swap(a.row_slot[i], a.row_slot[static_cast<size_t>(random.integer(0, static_cast<int64_t>(i)))]);
          a.weights = random.normal(m * k);
          TestMatrix y(type, m * k, d, random.normal(m * k * d));
          TestMatrix shared(type, m, d, random.normal(m * d));
          TestMatrix out(type, m, d, std::vector<float>(static_cast<size_t>(m * d)));
          runner.run(runner.ops().moe_combine,
                     ops::MoeCombineParams{
                         .y = y.view(), .from = a.view(), .shared = with_shared ? shared.view() : MatrixView{}, .out = out.view()});
          std::vector<double> expected;
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t c = 0; c < d; ++c) {
              double sum = with_shared ? shared.at(r, c) : 0;
              for (int32_t j = 0; j < k; ++j)
                sum += double{a.weights[static_cast<size_t>(r * k + j)]} * y.at(a.row_slot[static_cast<size_t>(r * k + j)], c);
              expected.push_back(sum);
            }
          }
          EXPECT_LT(relative_error(out.read(), expected), type == DType::kF32 ? 1e-6 : 4e-3) << isa_name(isa);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::cpu::testing
