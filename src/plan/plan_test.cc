// The arithmetic of plans, held against published figures of the released model and against itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "plan/planner.h"

namespace baton::plan {
namespace {

model::Config released() {
  return *model::parse_config(*read_file(BATON_TEST_DATA "/configs/glm-5.3-flash.json", 1 << 20), "glm-5.3-flash.json");
}

double floor_ms(const std::vector<Work>& all) {
  double seconds = 0;
  for (const Work& w : all) seconds += floor_seconds(w, *find_gpu("h200"));
  return seconds * 1e3;
}

Machine four_gpus() { return {.gpu = *find_gpu("h200"), .gpus = 4, .layout = Layout::kByRequest, .cache = {}, .accepted = 7.03}; }

// A count made apart from this one, from the published dimensions: 128 requests of 8 rows behind 64K tokens on four GPUs.
TEST(Work, FloorOfADecodeCycleIsThatOfTheIndependentCount) {
  const model::Config c = released();
  DecodeShape s{.layout = Layout::kByRequest,
                .gpus = 4,
                .requests = 128,
                .rows = 8,
                .context = 65'536,
                .drafter = Drafter::kDFlash2,
                .accepted = 7.03};
  EXPECT_NEAR(floor_ms(decode_work(c, s)), 28.15, 0.01);
  s.layout = Layout::kTensor;
  EXPECT_NEAR(floor_ms(decode_work(c, s)), 35.72, 0.01);
  s.layout = Layout::kByRequest;
  s.gpus = 8;
  EXPECT_NEAR(floor_ms(decode_work(c, s)), 15.15, 0.01);
  s.requests = 512;
  EXPECT_NEAR(floor_ms(decode_work(c, s)), 34.31, 0.01);
}

TEST(Work, FloorOfAPrefillChunkIsThatOfTheIndependentCount) {
  const model::Config c = released();
  PrefillShape s{.gpus = 4, .chunk = 32'768, .past = 32'768};
  EXPECT_NEAR(floor_ms(prefill_work(c, s)), 405.96, 0.1);
  s.split_experts = true;
  EXPECT_NEAR(floor_ms(prefill_work(c, s)), 420.83, 0.1);
}

// The all-gather of rows in FP8 with scales, ids and weights takes 47.5 % less than in BF16.
TEST(Work, TransportInFp8SavesWhatWasPublished) {
  const model::Config c = released();
  const auto peer_bytes = [&c](bool fp8) {
    const auto all = prefill_work(c, {.gpus = 4, .chunk = 32'768, .past = 0, .fp8_transport = fp8});
    return all.back().peer_bytes;
  };
  const double back = 0.75 * 32'768 * 4096 * 2;
  EXPECT_NEAR((peer_bytes(true) - back) / (peer_bytes(false) - back), 1 - 0.475, 0.003);
}

TEST(Work, DraftingByDFlash2IsCheaperThanByMtp) {
  const model::Config c = released();
  const auto cycle = [&c](Drafter d) {
    return floor_ms(decode_work(c, {.gpus = 4, .requests = 128, .rows = 8, .context = 65'536, .drafter = d, .accepted = 7}));
  };
  const double none = cycle(Drafter::kNone);
  EXPECT_LT(cycle(Drafter::kDFlash2) - none, cycle(Drafter::kMtp) - none);
}

// Engines that hold a state for each drafted row, BF16 rows and F32 states ran 56 requests of 64K + 1K on four H200; FP8 rows, BF16 states
// and replay 132. Neither published what else took memory, hence a tenth of tolerance.
TEST(Memory, PublishedLimitsOfRunningRequestsComeOut) {
  const model::Config c = released();
  MemoryQuestion q{.layout = Layout::kTensor,
                   .gpus = 4,
                   .cache = {.latent = DType::kBF16, .state = DType::kF32, .replay = false, .rows = 8, .drafter = Drafter::kMtp},
                   .context_tokens = 66'560};
  EXPECT_NEAR(static_cast<double>(plan_memory(c, *find_gpu("h200"), q).running), 56, 5.6);
  q.cache = {.latent = DType::kF8E4M3, .state = DType::kBF16, .replay = true, .rows = 8, .drafter = Drafter::kDFlash2};
  EXPECT_NEAR(static_cast<double>(plan_memory(c, *find_gpu("h200"), q).running), 132, 13.2);
}

// A pool for states of 0.9 of the tokens' pool, states and rows in BF16: tokens run out while a twentieth of the states is in use.
TEST(Memory, AFixedSplitLeavesStatesUnusedWhileTokensRunOut) {
  constexpr int64_t kMiB = 1 << 20;
  const SplitPools p = split_pools(55'000 * kMiB, 0.9, 28 * kMiB, 66'560 * 12'716LL);
  EXPECT_NEAR(p.state_use(), 0.05, 0.02);
}

TEST(Memory, SharedPagesAreCountedOnceAndPartialOnesByEachRequest) {
  const model::Config c = released();
  const auto page_lines = [&c](int64_t shared) {
    const Memory m = plan_memory(c, *find_gpu("h200"), {.gpus = 4, .cache = {}, .context_tokens = 6400, .shared_tokens = shared});
    return std::pair(m.per_request.front().bytes, m.running);
  };
  EXPECT_EQ(page_lines(63).first, page_lines(0).first);
  EXPECT_LT(page_lines(64).first, page_lines(0).first);
  EXPECT_GT(page_lines(6336).second, page_lines(0).second);
}

TEST(Memory, WeightsThatDoNotFitLetNothingRun) {
  const Memory m = plan_memory(released(), *find_gpu("h200"), {.gpus = 1, .cache = {}, .context_tokens = 1024});
  EXPECT_EQ(m.running, 0);
  EXPECT_LT(m.unused_bytes(), 0);
  const Plan p = make_plan(released(), {.gpu = *find_gpu("h200"), .gpus = 1, .cache = {}}, {}, {});
  EXPECT_EQ(p.decode.limit, Limit::kNothingFits);
  EXPECT_EQ(p.prefill_per_decode, 0);
}

TEST(Plan, LimitIsNamedAndHolds) {
  const model::Config c = released();
  Load load{.prompt_tokens = 65'536, .output_tokens = 1024, .shared = 0.999, .concurrency = 128, .tpot_seconds = 0.025};
  Plan p = make_plan(c, four_gpus(), load, {});
  EXPECT_EQ(p.decode.limit, Limit::kConcurrency);
  EXPECT_EQ(p.decode.point.requests, 128);

  load.concurrency = 0;
  load.tpot_seconds = 0.006;
  p = make_plan(c, four_gpus(), load, {});
  ASSERT_EQ(p.decode.limit, Limit::kTpot);
  EXPECT_LE(p.decode.point.tpot_seconds, 0.006);
  const double context = load.prompt_tokens + load.output_tokens / 2;
  EXPECT_GT(decode_point(c, four_gpus(), {}, context, p.decode.point.requests + 1).tpot_seconds, 0.006)
      << "one more would have been fast enough";

  load.tpot_seconds = 1;
  load.shared = 0;
  p = make_plan(c, four_gpus(), load, {});
  EXPECT_EQ(p.decode.limit, Limit::kMemory);
  EXPECT_EQ(p.decode.point.requests, static_cast<double>(p.decode.memory.running));

  load.tpot_seconds = 1e-4;
  EXPECT_EQ(make_plan(c, four_gpus(), load, {}).decode.limit, Limit::kTooSlow);
}

TEST(Plan, PrefillTakesWhatIsNotCachedInChunks) {
  const model::Config c = released();
  Load load{.prompt_tokens = 65'536, .output_tokens = 10};
  const PrefillPlan cold = make_plan(c, four_gpus(), load, {}).prefill;
  ASSERT_EQ(cold.chunk_seconds.size(), 2U);
  EXPECT_GT(cold.chunk_seconds[1], cold.chunk_seconds[0]) << "more tokens stand before the second";
  load.shared = 0.5;
  EXPECT_EQ(make_plan(c, four_gpus(), load, {}).prefill.chunk_seconds.size(), 1U);
  load.shared = 1;
  EXPECT_EQ(make_plan(c, four_gpus(), load, {}).prefill.ttft_seconds, 0);
  load = {.prompt_tokens = 65'536, .output_tokens = 10, .ttft_seconds = cold.ttft_seconds / 2};
  EXPECT_EQ(make_plan(c, four_gpus(), load, {}).prefill.requests_per_second, 0) << "no rate is low enough";
}

TEST(Plan, ChangesThatAreNamedGiveWhatTheySay) {
  const model::Config c = released();
  Machine m = four_gpus();
  m.cache.latent = DType::kBF16;
  const Load load{.prompt_tokens = 65'536, .output_tokens = 1024, .tpot_seconds = 1};
  const auto changes = helpful_changes(c, m, load, {});
  ASSERT_FALSE(changes.empty());
  const auto fp8 = std::ranges::find(changes, std::string("FP8 latent cache"), &Change::name);
  ASSERT_NE(fp8, changes.end());
  m.cache.latent = DType::kF8E4M3;
  EXPECT_DOUBLE_EQ(fp8->tokens_per_second, make_plan(c, m, load, {}).decode.point.tokens_per_second);
}

TEST(Measurements, AMeasuredShareReplacesTheExpectedOne) {
  const auto shares = parse_measurements(
      "banner\n{\"op\":\"kda_decode\",\"us\":100,\"floor_us\":50}\n{\"op\":\"x\"}\n{\"op\":\"kda_decode\",\"us\":100,\"floor_us\":9}",
      "results");
  ASSERT_TRUE(shares.ok()) << shares.error().message;
  ASSERT_EQ(shares->size(), 1U);
  const Efficiency e{.measured = *shares};
  const Work w{.part = "KDA state", .op = "kda_decode", .repeats = 34, .bytes = 4.55e9};
  EXPECT_DOUBLE_EQ(expected_seconds(w, *find_gpu("h200"), e), 34 * 1e-3 / 0.5);
}

TEST(Measurements, WhatCannotBeTrueIsRefused) {
  const auto below = parse_measurements("{\"op\":\"kda_decode\",\"us\":10,\"floor_us\":50}", "results");
  ASSERT_FALSE(below.ok());
  EXPECT_NE(below.error().message.find("line 1"), std::string::npos) << below.error().message;
  EXPECT_FALSE(parse_measurements("", "results").ok());
  EXPECT_FALSE(parse_measurements("{\"op\":\"kda", "results").ok());
}

// Of a bench of whole cycles: what a plan counts as one is added up, and the best of several points counts.
TEST(Measurements, BenchesOfCyclesAreRead) {
  const auto shares = parse_measurements(R"({"kind": "decode", "points": [
    {"ops": [{"op": "kda", "us": 60, "floor_us": 30}, {"op": "kda_fold", "us": 40, "floor_us": 10}, {"op": "gemm", "us": 10, "floor_us": 8},
             {"op": "sample", "us": 5}]},
    {"ops": [{"op": "kda", "us": 90, "floor_us": 30}, {"op": "kda_fold", "us": 40, "floor_us": 10},
             {"op": "gemm", "us": 10, "floor_us": 12}]}]})",
                                         "cycle.json");
  ASSERT_TRUE(shares.ok()) << shares.error().message;
  EXPECT_DOUBLE_EQ(shares->at("kda_decode"), 0.4);
  EXPECT_DOUBLE_EQ(shares->at("head"), 1) << "what lies in a cache may be faster than memory";
  EXPECT_FALSE(shares->contains("sample"));
  const auto prefill =
      parse_measurements(R"({"kind": "prefill", "points": [{"ops": [{"op": "kda", "us": 4, "floor_us": 1}]}]})", "chunk.json");
  ASSERT_TRUE(prefill.ok()) << prefill.error().message;
  EXPECT_DOUBLE_EQ(prefill->at("kda_chunk"), 0.25);
  const auto stay = parse_measurements(
      "{\"step\":\"a\",\"result\":{\"kind\":\"decode\",\"points\":[{\"ops\":[{\"op\":\"kda\",\"us\":4,\"floor_us\":1}]}]}}\n"
      "{\"step\":\"b\",\"result\":{\"kind\":\"prefill\",\"points\":[{\"ops\":[{\"op\":\"kda\",\"us\":4,\"floor_us\":2}]}]}}\n",
      "results.jsonl");
  ASSERT_TRUE(stay.ok()) << stay.error().message;
  EXPECT_DOUBLE_EQ(stay->at("kda_decode"), 0.25);
  EXPECT_DOUBLE_EQ(stay->at("kda_chunk"), 0.5);
  const auto third = parse_measurements("banner\n\n{\"step\":\"a\",\"result\":{}}\n", "results.jsonl");
  ASSERT_FALSE(third.ok());
  EXPECT_NE(third.error().message.find("results.jsonl: line 3"), std::string::npos) << third.error().message;
  for (const char* bad : {R"({"points": []})", R"({"kind": "decode", "points": 3})", R"({"kind": "decode", "points": []})",
                          R"({"kind": "decode", "points": [{"ops": [{"op": "kda", "us": 4}]}]})"}) {
    const auto wrong = parse_measurements(bad, "cycle.json");
    ASSERT_FALSE(wrong.ok()) << bad;
    EXPECT_NE(wrong.error().message.find("cycle.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace baton::plan
