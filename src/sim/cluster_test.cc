// Cells and clusters beside what can be computed by hand, and what has to hold whatever the load.
#include "sim/cluster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "sim/calibration.h"

namespace baton::sim {
namespace {

// Costs in milliseconds.
std::shared_ptr<const CostModel> cost(double cycle, double decode_row, double prompt_row) {
  LinearCost c;
  c.parts[LinearCost::kCycle] = cycle / 1e3;
  c.parts[LinearCost::kDecodeRow] = decode_row / 1e3;
  c.parts[LinearCost::kPromptRow] = prompt_row / 1e3;
  return std::make_shared<LinearCost>(c);
}

ClusterOptions options(int32_t prefills, int32_t decodes, std::shared_ptr<const CostModel> of) {
  ClusterOptions o;
  o.prefills = prefills;
  o.decodes = decodes;
  o.concurrency = 8;
  o.cell.context_tokens = 4096;
  for (InstanceShape* s : {&o.cell.prefill, &o.cell.decode}) {
    s->memory = {.pages = 2000, .slots = 32, .snapshots = 64};
    s->chunk = 512;
    s->snapshot_tokens = 64;
    s->cost = of;
  }
  if (prefills > 0) o.cell.decode.memory.snapshots = 0;
  o.cell.message = 0;
  o.cell.page_bytes = 1e5;
  o.cell.slot_bytes = 1e6;
  return o;
}

load::Workload prompts(int64_t count, int64_t prefix, int64_t own, int64_t output, uint64_t seed = 3) {
  return load::shared_prefixes({.groups = 1, .per_group = count, .prefix = prefix, .question = own, .output = output, .seed = seed});
}

TEST(Cluster, OneRequestTakesWhatItsCyclesTake) {
  ClusterOptions o = options(0, 1, cost(10, 1, 0.5));
  const ClusterResult r = run_cluster(o, prompts(1, 0, 1000, 21), {});
  ASSERT_EQ(r.run.records.size(), 1U);
  const load::Record& record = r.run.records.front();
  EXPECT_TRUE(record.good()) << record.failure;
  EXPECT_EQ(record.tokens(), 21);
  // Chunks end at page edges and where a state is left behind: 512, 448 to the last full page, 40.
  EXPECT_NEAR(record.ttft(), 0.010 * 3 + 0.0005 * 1000, 1e-6);
  EXPECT_NEAR(record.tpot(), 0.011, 1e-6);
  EXPECT_NEAR(r.gaps.distribution().mean, 11, 1e-6);
  EXPECT_NEAR(record.end, record.chunks.back(), 1e-9);
}

TEST(Cluster, HandsOverAndAnswersEverything) {
  for (const bool share : {true, false}) {
    ClusterOptions o = options(3, 2, cost(5, 0.1, 0.05));
    o.cell.share_on_decode = share;
    const ClusterResult r = run_cluster(o, prompts(200, 1920, 128, 16), {});
    ASSERT_EQ(r.run.records.size(), 200U);
    EXPECT_EQ(r.run.unsent, 0);
    for (const load::Record& record : r.run.records) {
      EXPECT_TRUE(record.good()) << record.failure;
      EXPECT_EQ(record.tokens(), 16);
      EXPECT_GT(record.ttft(), 0);
    }
    EXPECT_EQ(r.orders, 200);
    EXPECT_EQ(r.retried_orders, 0);
    ASSERT_EQ(r.instances.size(), 5U);
    int64_t found = 0, computed = 0;
    for (const Use& u : r.instances) {
      EXPECT_NE(u.prefills, u.decodes);
      EXPECT_GE(u.busy, 0);
      EXPECT_LE(u.busy, 1.001);
      if (u.decodes) found += u.cached_tokens;
      if (u.prefills) computed += u.prompt_tokens - u.cached_tokens;
    }
    // Prefill shares in both cases; decode goes on from others' pages only where it may.
    EXPECT_LT(computed, 200 * 2048 / 4);
    if (share)
      EXPECT_GT(found, 200 * 1920 / 2);
    else
      EXPECT_EQ(found, 0);
  }
}

TEST(Cluster, TheSameOptionsGiveTheSameRunOnAnyNumberOfThreads) {
  ClusterOptions o = options(0, 200, cost(5, 0.1, 0.05));
  o.concurrency = 400;
  o.cell.decode.memory.pages = 100;
  o.cell.decode.memory.slots = 16;
  o.cell.context_tokens = 1024;
  EXPECT_EQ(cells_of(o), 4);
  const load::Workload w = prompts(1000, 128, 64, 8);
  std::vector<double> ends;
  for (const int32_t threads : {1, 3}) {
    o.threads = threads;
    const ClusterResult r = run_cluster(o, w, {});
    ASSERT_EQ(r.run.records.size(), w.size());
    EXPECT_EQ(r.instances.size(), 200U);
    for (size_t i = 0; i < r.run.records.size(); ++i) {
      ASSERT_EQ(r.run.records[i].conversation, static_cast<int64_t>(i)) << "a request of another place";
      if (threads == 1)
        ends.push_back(r.run.records[i].end);
      else
        EXPECT_EQ(r.run.records[i].end, ends[i]);
    }
  }
}

TEST(Cluster, DraftsMakeACycleYieldMore) {
  ClusterOptions o = options(0, 1, cost(10, 0, 0.01));
  o.concurrency = 16;
  o.cell.accepted = 3.5;
  const load::Measurement m = measurement_of(run_cluster(o, prompts(64, 0, 64, 400), {}), {}, o.cell.accepted);
  EXPECT_EQ(m.summary.output_tokens, 64 * 400);
  EXPECT_NEAR(m.summary.tpot.p50, 10 / 3.5, 0.1);
  EXPECT_NEAR(m.summary.itl.p50, 10, 0.3);
}

// A coarser simulation of the same load: fewer events, and nearly the same figures.
TEST(Cluster, GrainChangesLittle) {
  ClusterOptions o = options(1, 1, cost(4, 0.2, 0.1));
  o.cell.context_tokens = 9000;
  for (InstanceShape* s : {&o.cell.prefill, &o.cell.decode}) s->memory.pages = 8000, s->chunk = 2048;
  const load::Workload w = prompts(40, 4096, 4096, 256);
  const ClusterResult fine = run_cluster(o, w, {});
  o.cell.grain = 4;
  const ClusterResult coarse = run_cluster(o, w, {});
  const load::Summary a = measurement_of(fine, {}, 1).summary, b = measurement_of(coarse, {}, 1).summary;
  EXPECT_LT(coarse.events, fine.events / 2);
  EXPECT_EQ(a.output_tokens, b.output_tokens);
  EXPECT_NEAR(b.ttft.mean / a.ttft.mean, 1, 0.1);
  EXPECT_NEAR(b.tpot.mean / a.tpot.mean, 1, 0.1);
  EXPECT_NEAR(b.output_rate / a.output_rate, 1, 0.1);
}

TEST(Cluster, AFullQueueIsARefusalAndCountsAsOne) {
  ClusterOptions o = options(0, 2, cost(50, 0, 0));
  o.concurrency = 0;
  o.cell.most_waiting = 4;
  o.cell.decode.memory.slots = 1;
  const load::Measurement m = measurement_of(run_cluster(o, prompts(100, 0, 64, 4), {}), {}, 1);
  EXPECT_EQ(m.summary.completed + m.summary.failed, 100);
  EXPECT_GE(m.summary.completed, 2 * 4);
  EXPECT_EQ(m.summary.failures.at("http 429"), m.summary.failed);
  EXPECT_GT(m.summary.failed, 0);
}

TEST(Cluster, TurnsFollowEachOtherAndFindWhatWasSaid) {
  ClusterOptions o = options(0, 4, cost(5, 0.1, 0.05));
  const load::Workload w =
      load::agents({.agents = 12, .turns = 5, .system = 512, .task = 128, .result = 128, .output = 16, .delay_s = 0.2, .seed = 5});
  const ClusterResult r = run_cluster(o, w, {});
  ASSERT_EQ(std::ssize(r.run.records), load::turns_of(w));
  for (size_t i = 0; i < r.run.records.size(); ++i) {
    const load::Record& record = r.run.records[i];
    ASSERT_TRUE(record.good()) << record.failure;
    if (record.turn == 0) continue;
    const double delay = w[static_cast<size_t>(record.conversation)].turns[static_cast<size_t>(record.turn)].delay_s;
    EXPECT_NEAR(record.intended, r.run.records[i - 1].end + delay, 1e-6);
  }
  const int64_t cached = std::accumulate(r.run.records.begin(), r.run.records.end(), int64_t{0},
                                         [](int64_t sum, const load::Record& record) { return sum + record.cached_tokens; });
  EXPECT_GT(cached, 12 * 4 * 512);
}

// An open loop: requests wait for a place where places are bounded, and that counts from their arrival.
TEST(Cluster, ArrivalsDoNotWaitForAnswers) {
  ClusterOptions o = options(0, 1, cost(100, 0, 0));
  o.concurrency = 0;
  const load::Workload w = prompts(10, 0, 64, 2);
  std::vector<double> at(w.size());
  for (size_t i = 0; i < at.size(); ++i) at[i] = 0.01 * static_cast<double>(i);
  const ClusterResult free = run_cluster(o, w, at);
  for (size_t i = 0; i < at.size(); ++i) EXPECT_NEAR(free.run.records[i].intended, at[i], 1e-9);
  o.concurrency = 1;
  const ClusterResult held = run_cluster(o, w, at);
  for (size_t i = 0; i < at.size(); ++i) EXPECT_NEAR(held.run.records[i].intended, at[i], 1e-9);
  EXPECT_GT(held.run.records.back().ttft(), 9 * 0.2);
  EXPECT_EQ(held.run.most_at_once, 1);
}

TEST(Cost, GridFollowsItsFunctions) {
  const GridCost grid({.decode = [](double r, double c) { return 1e-3 * r + 1e-8 * r * c; },
                       .prompt = [](double r, double p) { return 1e-4 * r * std::log(2 + p); },
                       .most_requests = 512,
                       .most_rows = 4096,
                       .most_context = 65'536});
  for (const double r : {1.0, 3.0, 77.0, 500.0})
    for (const double c : {10.0, 5000.0, 60'000.0}) {
      EXPECT_NEAR(grid.seconds({.decoding = r, .decode_context = r * c}, 2) / (2 * (1e-3 * r + 1e-8 * r * c) + 1e-4), 1, 0.03);
      EXPECT_NEAR(grid.seconds({.prompt_tokens = r, .prompt_past = r * c}, 1) / (1e-4 * r * std::log(2 + c) + 1e-4), 1, 0.03);
    }
}

TEST(Cost, FilesComeBackAndAreChecked) {
  LinearCost c;
  for (size_t i = 0; i < LinearCost::kParts; ++i) c.parts[i] = 1e-6 * static_cast<double>(i + 1);
  const Result<LinearCost> back = parse_cost(json_of(c), "f");
  ASSERT_TRUE(back.ok()) << back.error().message;
  for (size_t i = 0; i < LinearCost::kParts; ++i) EXPECT_NEAR(back->parts[i], c.parts[i], 1e-12);
  for (const char* bad : {"", "[]", "{\"cycle_us\": -1}", "{\"cycle_us\": \"x\"}", "{\"cycle\": 1}", "{\"cycle_us\": 0}", "{}"}) {
    const Result<LinearCost> wrong = parse_cost(bad, "costs.json");
    ASSERT_FALSE(wrong.ok()) << bad;
    EXPECT_NE(wrong.error().message.find("costs.json"), std::string::npos);
  }
}

// What a simulation with known costs gives is taken for measured: the fit predicts a load that it has not seen.
TEST(Calibration, PredictsALoadThatWasHeldOut) {
  const auto truth = cost(3, 0.4, 0.15);
  const ClusterOptions o = options(0, 1, truth);
  std::vector<MeasuredRun> runs;
  for (const auto& [own, output, concurrency] : {std::tuple{128, 32, 1}, {128, 32, 4}, {1024, 16, 2}, {64, 64, 8}, {512, 32, 6}}) {
    MeasuredRun r;
    r.workload = prompts(16, 0, own, output);
    r.concurrency = concurrency;
    r.longest = own + output;
    const MeasuredRun s = simulated(o, r);
    r.ttft_ms = s.ttft_ms;
    r.tpot_ms = s.tpot_ms;
    r.output_rate = s.output_rate;
    runs.push_back(std::move(r));
  }
  const LinearCost found = fit(o, std::span(runs).first(runs.size() - 1));
  const MeasuredRun predicted = simulated(with_cost(o, found), runs.back());
  EXPECT_NEAR(predicted.ttft_ms / runs.back().ttft_ms, 1, 0.1);
  EXPECT_NEAR(predicted.tpot_ms / runs.back().tpot_ms, 1, 0.1);
  EXPECT_NEAR(predicted.output_rate / runs.back().output_rate, 1, 0.1);
}

}  // namespace
}  // namespace baton::sim
