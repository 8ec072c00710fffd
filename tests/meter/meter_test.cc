#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "base/file.h"
#include "meter/clock_timeline.h"
#include "meter/metered_backend.h"
#include "meter/synthetic_cycle.h"
#include "model/random_checkpoint.h"
#include "model/sequence_runner.h"
#include "ops/cpu/backend.h"

namespace baton::meter {
namespace {

constexpr size_t kMostOps = 1000;

model::Checkpoint random_of(const std::string& golden, model::WeightFormat format) {
  const std::string path = golden.ends_with(".json") ? golden : std::string(BATON_TEST_DATA "/golden/") + golden + "/config.json";
  return *model::random_checkpoint(*read_file(path, 1 << 20), path, format, 1, 2);
}

// The CPU with experts that are "prepared": moe_experts is there, and is the three ops row by row.
class PreparingBackend final : public ops::Backend {
 public:
  explicit PreparingBackend(bool prepares) : prepares_(prepares) {
    table_ = cpu_.ops();
    if (prepares)
      table_.moe_experts = {run, [](const ops::MoeExpertsParams&) { return true; },
                            [](const ops::Executor&, const ops::MoeExpertsParams&) { return int64_t{0}; }};
  }
  const ops::OpTable& ops() const override { return table_; }
  ops::Executor& executor() override { return cpu_.executor(); }
  Result<Buffer> allocate(int64_t bytes) override { return cpu_.allocate(bytes); }
  void copy_to_device(void* to, const void* from, int64_t bytes) override { cpu_.copy_to_device(to, from, bytes); }
  void copy_to_host(void* to, const void* from, int64_t bytes) override { cpu_.copy_to_host(to, from, bytes); }
  void copy_on_device(void* to, const void* from, int64_t bytes) override { cpu_.copy_on_device(to, from, bytes); }
  void clear_on_device(void* to, int64_t bytes) override { cpu_.clear_on_device(to, bytes); }
  void synchronize() override {}
  int64_t weight_bytes(DType dtype, int64_t n, int64_t k) const override { return cpu_.weight_bytes(dtype, n, k); }
  void store_weight(void* to, ConstMatrixView host) override { cpu_.store_weight(to, host); }
  bool prepare_experts(std::span<const ops::WeightView> gate, std::span<const ops::WeightView> up, std::span<const ops::WeightView> down,
                       ops::ActivationQuant) override {
    EXPECT_EQ(gate.size(), up.size());
    EXPECT_EQ(gate.size(), down.size());
    return prepares_;
  }

 private:
  static void run(ops::Context& ctx, const ops::MoeExpertsParams& p) {
    EXPECT_EQ(p.from.offsets, nullptr);
    static const cpu::CpuBackend plain({.threads = 1, .isa = cpu::detect_isa()});
    const int64_t k = p.from.k, inner = p.gate[0].n, d = p.x.cols;
    Buffer scratch = *allocate_host(int64_t{4} << 20);
    for (int64_t r = 0; r < p.x.rows; ++r) {
      Arena arena(scratch.data(), scratch.bytes());
      ops::Context own{ctx.executor, &arena};
      ops::ExpertAssignment one = p.from;
      one.ids += r * k;
      one.weights += r * k;
      one.offsets = arena.array<int32_t>(one.experts + 1);
      one.slot_row = arena.array<int32_t>(k);
      one.row_slot = arena.array<int32_t>(k);
      std::fill_n(one.offsets, one.experts + 1, 0);
      std::fill_n(one.slot_row, k, 0);
      for (int64_t j = 0; j < k; ++j)
        for (int32_t e = one.ids[j]; e < one.experts; ++e) ++one.offsets[e + 1];
      for (int64_t j = 0; j < k; ++j) one.row_slot[j] = one.offsets[one.ids[j]];
      const MatrixView h = arena.matrix(p.x.dtype, k, inner), y = arena.matrix(p.x.dtype, k, d);
      plain.ops().moe_gate_up.run(
          own, {.x = p.x.row_range(r, 1), .from = one, .gate = p.gate, .up = p.up, .limit = p.limit, .quant = p.quant, .h = h});
      plain.ops().moe_down.run(own, {.h = h, .from = one, .down = p.down, .quant = p.quant, .y = y});
      plain.ops().moe_combine.run(own, {.y = y, .from = one, .shared = p.shared.row_range(r, 1), .out = p.out.row_range(r, 1)});
    }
  }

  cpu::CpuBackend cpu_{{.threads = 2, .isa = cpu::detect_isa()}};
  ops::OpTable table_;
  bool prepares_;
};

struct Bench {
  explicit Bench(const CycleShape& s, const std::string& golden = "mtp", model::WeightFormat format = model::WeightFormat::kF32,
                 bool prepares = false)
      : shape(s), checkpoint(random_of(golden, format)), inner(prepares),
        backend(inner, std::make_unique<ClockTimeline>(2 * kMostOps), kMostOps),
        model(*model::Glm5Next::load(checkpoint, backend, SyntheticCycle::allow({}, s))),
        cycle(*SyntheticCycle::create(*model, backend, s)) {}

  std::vector<float> output() const {
    const MatrixView v = cycle->output();
    const auto* data = v.row<float>(0);
    return {data, data + v.rows * v.cols};
  }

  CycleShape shape;
  model::Checkpoint checkpoint;
  PreparingBackend inner;
  MeteredBackend backend;
  std::unique_ptr<model::Glm5Next> model;
  std::unique_ptr<SyntheticCycle> cycle;
};

const OpRow& only(const std::vector<OpRow>& rows, std::string_view op) {
  const OpRow* found = nullptr;
  for (const OpRow& r : rows)
    if (r.op == op) {
      EXPECT_EQ(found, nullptr) << op << " has several shapes";
      found = &r;
    }
  EXPECT_NE(found, nullptr) << op;
  return *found;
}

TEST(RandomCheckpoint, HasEveryTensorOfEveryFormat) {
  // In the second one, matrices of the same name and shape have different types: KDA's are not quantised.
  for (const std::string config : {"small-fp8", BATON_TEST_DATA "/../../bench/configs/cpu-43m.json"})
    for (const auto format : {model::WeightFormat::kF32, model::WeightFormat::kBF16, model::WeightFormat::kFp8}) {
      const model::Checkpoint c = random_of(config, format);
      std::set<const std::byte*> places;
      for (const model::StoredTensor& t : model::stored_tensors(c.config(), format)) {
        const model::TensorEntry* e = c.find(t.name);
        ASSERT_NE(e, nullptr) << t.name;
        EXPECT_EQ(e->shape, t.shape);
        EXPECT_EQ(e->dtype, t.dtype);
        EXPECT_EQ(e->bytes, t.bytes());
        places.insert(e->data);
      }
      EXPECT_LT(places.size(), c.tensors().size());  // layers share
    }
}

// What a context that is its own seed leaves behind is what computing it leaves: the rows behind it come out the same.
TEST(SyntheticCycle, ComputesWhatASequenceComputes) {
  for (const int64_t context : {int64_t{0}, int64_t{7}, int64_t{64}, int64_t{130}}) {
    Bench b({.sequences = 3, .rows = 4, .context = context, .verify = true, .accepted = 0});
    b.cycle->run();
    const std::vector<float> got = b.output();

    auto options = SyntheticCycle::allow({}, b.shape);
    const auto model = *model::Glm5Next::load(b.checkpoint, b.inner, options);
    auto runner = *model::SequenceRunner::create(*model, b.inner, 1, context + 4, 256);
    const auto ids_of = [&](uint64_t seed, int64_t count) {
      std::mt19937_64 random(seed);
      std::vector<int32_t> ids(static_cast<size_t>(count));
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(model->config().vocab_size));
      return ids;
    };
    const std::vector<int32_t> seed = ids_of(2, context);
    const std::vector<int32_t> all = ids_of(1, 12);
    if (context > 0) {
      const model::SequenceRunner::Rows rows{0, seed};
      runner.forward({&rows, 1});
    }
    for (size_t q = 0; q < 3; ++q) {
      const model::SequenceRunner::Rows rows{0, std::span(all).subspan(q * 4, 4), true};
      const MatrixView hidden = runner.forward({&rows, 1});
      EXPECT_EQ(std::memcmp(hidden.data, got.data() + q * 4 * static_cast<size_t>(hidden.cols), static_cast<size_t>(4 * hidden.cols * 4)),
                0)
          << "sequence " << q << " behind " << context;
    }
  }
}

TEST(SyntheticCycle, LongContextsRepeatTheirSeed) {
  for (const int64_t context : {int64_t{1025}, int64_t{3000}, int64_t{4096}}) {
    Bench b({.sequences = 2, .rows = 3, .context = context, .verify = true, .accepted = 2});
    for (int i = 0; i < 3; ++i) b.cycle->run();
    for (const float x : b.output()) ASSERT_TRUE(std::isfinite(x)) << context;
  }
}

TEST(MeteredBackend, ChangesNoResultAndCountsEveryCall) {
  const CycleShape shape{.sequences = 4, .rows = 8, .context = 300, .verify = true, .accepted = 3};
  std::vector<float> wanted;
  {
    Bench plain(shape);
    for (int i = 0; i < 3; ++i) plain.cycle->run();
    wanted = plain.output();
  }
  Bench b(shape);
  b.backend.start_counting();
  b.cycle->run();
  b.backend.finish();
  for (int i = 0; i < 2; ++i) {
    b.backend.start_timing();
    b.cycle->run();
    b.backend.finish();
  }
  EXPECT_EQ(b.output(), wanted);
  EXPECT_EQ(b.backend.rounds(), 2U);

  int64_t kda = 0, sparse = 0, moe = 0;
  for (const model::LayerKind& l : b.checkpoint.config().layers) {
    ++(l.attention == model::AttentionKind::kKda ? kda : sparse);
    moe += l.mlp == model::MlpKind::kMoe ? 1 : 0;
  }
  const std::vector<OpRow> rows = b.backend.rows();
  EXPECT_EQ(only(rows, "kda").calls, kda);
  EXPECT_EQ(only(rows, "kda_fold").calls, kda);
  EXPECT_EQ(only(rows, "mla_attend").calls, sparse);
  EXPECT_EQ(only(rows, "moe_gate_up").calls, moe);
  EXPECT_EQ(only(rows, "sample").calls, 1);
  double seconds = 0;
  for (const OpRow& r : rows) {
    EXPECT_GT(r.bytes, 0) << r.op;
    EXPECT_GT(r.seconds, 0) << r.op;
    seconds += r.seconds;
  }
  EXPECT_NEAR(seconds + b.backend.seconds_between(), b.backend.seconds(), 1e-6);
}

TEST(PreparedExperts, GiveTheSameBitsAndCostNoRowsInBetween) {
  const CycleShape shape{.sequences = 2, .rows = 3, .context = 70};
  std::vector<OpRow> rows[2];
  std::vector<float> output[2];
  for (const bool prepares : {false, true}) {
    Bench b(shape, "small-fp8", model::WeightFormat::kFp8, prepares);
    b.backend.start_counting();
    b.cycle->run();
    b.backend.finish();
    rows[prepares ? 1 : 0] = b.backend.rows();
    output[prepares ? 1 : 0] = b.output();
  }
  EXPECT_EQ(output[0], output[1]);
  const OpRow &gate_up = only(rows[0], "moe_gate_up"), &down = only(rows[0], "moe_down"), &combine = only(rows[0], "moe_combine");
  const OpRow& experts = only(rows[1], "moe_experts");
  EXPECT_EQ(experts.calls, gate_up.calls);
  EXPECT_DOUBLE_EQ(experts.flop, gate_up.flop + down.flop);
  EXPECT_LT(experts.bytes, gate_up.bytes + down.bytes + combine.bytes);
  for (const OpRow& r : rows[1]) EXPECT_TRUE(r.op != "moe_gate_up" && r.op != "moe_down" && r.op != "moe_combine");
}

// Counted from the configuration, apart from the params.
TEST(OpCost, CountsWhatTheDimensionsSay) {
  Bench b({.sequences = 2, .rows = 4, .context = 200, .verify = true, .accepted = 2}, "small-fp8", model::WeightFormat::kFp8);
  const model::Config& c = b.checkpoint.config();
  b.backend.start_counting();
  b.cycle->run();
  b.backend.finish();
  const std::vector<OpRow> rows = b.backend.rows();
  const auto n = [](int64_t x) { return static_cast<double>(x); };

  const OpRow& kda = only(rows, "kda");
  const double state = n(c.kda_heads * c.kda_head_dim * c.kda_head_dim) * 4;
  const double window = 9 * n(c.kda_width()) * 4;
  const double row = n(4 * c.kda_width() + c.kda_heads) * 4;
  EXPECT_DOUBLE_EQ(kda.bytes, n(kda.calls) * (2 * (state + window) + 8 * (2 * row + 2 * n(c.kda_width()) * 4)));
  const OpRow& fold = only(rows, "kda_fold");
  EXPECT_DOUBLE_EQ(fold.bytes, n(fold.calls) * (2 * 2 * (state + window) + 4 * row));

  const OpRow& gate_up = only(rows, "moe_gate_up");
  EXPECT_DOUBLE_EQ(gate_up.flop, n(gate_up.calls) * 2 * 8 * n(c.experts_per_token) * 2 * n(c.hidden_size * c.moe_intermediate_size));
  const double expert = 2 * n(c.hidden_size * c.moe_intermediate_size);
  EXPECT_GE(gate_up.bytes, n(gate_up.calls * c.experts_per_token) * expert);
  EXPECT_LE(gate_up.bytes, n(gate_up.calls) * (n(c.experts) * expert * 1.01 + 1e6));

  // Rows of a sequence see at most the chosen tokens and the tail, and together no more than there are.
  const OpRow& attend = only(rows, "mla_attend");
  const double latent = n(b.model->cache_layout().latent.front().row_bytes);
  EXPECT_LE(attend.flop, n(attend.calls) * 4 * 8 * n(c.index_topk + c.index_kpool) * n(c.heads * c.kv_lora_rank));
  EXPECT_LE(attend.bytes, n(attend.calls) * (2 * 204 * latent + 2 * 8 * n(c.heads * c.kv_lora_rank) * 4));

  double head = 0;
  for (const OpRow& r : rows)
    if (r.op == "gemm" && r.shape.starts_with(fmt::format("{} x ", c.vocab_size))) head = r.flop;
  EXPECT_DOUBLE_EQ(head, 2 * 8 * n(c.vocab_size * c.hidden_size));
}

}  // namespace
}  // namespace baton::meter
