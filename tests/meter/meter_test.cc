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

struct Bench {
  explicit Bench(const CycleShape& s, const std::string& golden = "mtp", model::WeightFormat format = model::WeightFormat::kF32)
      : shape(s), checkpoint(random_of(golden, format)), backend(inner, std::make_unique<ClockTimeline>(2 * kMostOps), kMostOps),
        model(*model::Glm5Next::load(checkpoint, backend, SyntheticCycle::allow({}, s))),
        cycle(*SyntheticCycle::create(*model, backend, s)) {}

  std::vector<float> output() const {
    const MatrixView v = cycle->output();
    const auto* data = v.row<float>(0);
    return {data, data + v.rows * v.cols};
  }

  CycleShape shape;
  model::Checkpoint checkpoint;
  cpu::CpuBackend inner{{.threads = 2, .isa = cpu::detect_isa()}};
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
