// Figures of records whose figures are known, reports of them, and comparisons that must and must not tell results apart.
#include "load/report.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "load/comparison.h"
#include "load/page.h"
#include "load/presets.h"

namespace baton::load {
namespace {

namespace json = boost::json;

// Sent at `at`, the first piece after `ttft`, then `pieces` - 1 gaps of `gap` seconds.
Record record(int64_t index, double at, double ttft, int pieces, double gap) {
  Record r;
  r.conversation = index;
  r.asked_input = 100;
  r.asked_output = pieces;
  r.intended = r.sent = at;
  for (int i = 0; i < pieces; ++i) r.chunks.push_back(at + ttft + gap * i);
  r.end = r.chunks.back();
  r.input_tokens = 100;
  r.output_tokens = pieces;
  r.cached_tokens = 64;
  return r;
}

Record failed(int64_t index, double at) {
  Record r;
  r.conversation = index;
  r.intended = r.sent = at;
  r.end = at + 1;
  r.failure = "http 429";
  r.message = "busy";
  return r;
}

TEST(Statistics, PercentilesAreThoseOfNumPy) {
  // numpy.percentile([1, 2, 4, 8], [50, 90, 95, 99]) and numpy.std.
  const Distribution d = distribution_of({8, 1, 4, 2});
  EXPECT_DOUBLE_EQ(d.mean, 3.75);
  EXPECT_DOUBLE_EQ(d.p50, 3);
  EXPECT_NEAR(d.p90, 6.8, 1e-12);
  EXPECT_NEAR(d.p95, 7.4, 1e-12);
  EXPECT_NEAR(d.p99, 7.88, 1e-12);
  EXPECT_NEAR(d.deviation, 2.680951323690902, 1e-12);
  EXPECT_EQ(d.most, 8);
  EXPECT_EQ(distribution_of({}).count, 0);
  EXPECT_EQ(distribution_of({5}).p99, 5);
}

TEST(Statistics, CountWhatWasAnsweredAndNothingElse) {
  load::Run run;
  run.records = {record(0, 0, 0.5, 11, 0.02), record(1, 1, 1.5, 21, 0.04), failed(2, 2), record(3, 2, 0.5, 1, 0)};
  run.unsent = 2;
  Objective o;
  o.ttft_s = 1;
  o.tpot_s = 0.03;
  const Summary s = summary_of(run, o);
  EXPECT_EQ(s.completed, 3);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.unsent, 2);
  EXPECT_NEAR(s.duration_s, 3.3, 1e-12);
  EXPECT_EQ(s.input_tokens, 300);
  EXPECT_EQ(s.cached_tokens, 192);
  EXPECT_EQ(s.output_tokens, 33);
  EXPECT_NEAR(s.output_rate, 33 / 3.3, 1e-9);
  EXPECT_NEAR(s.request_rate, 3 / 3.3, 1e-9);
  EXPECT_NEAR(s.ttft.mean, 2500.0 / 3, 1e-9);
  // An answer of one piece has no time per token.
  EXPECT_EQ(s.tpot.count, 2);
  EXPECT_NEAR(s.tpot.mean, 30, 1e-9);
  EXPECT_EQ(s.itl.count, 30);
  EXPECT_NEAR(s.itl.mean, (10 * 20 + 20 * 40) / 30.0, 1e-9);
  EXPECT_NEAR(s.e2e.most, 2300, 1e-9);
  EXPECT_EQ(s.good, 2);
  EXPECT_NEAR(s.good_output_rate, 12 / 3.3, 1e-9);
  EXPECT_EQ(s.failures.at("http 429"), 1);
  double tokens = 0, running = 0;
  for (const double x : s.output_per_second) tokens += x;
  for (const double x : s.running_per_second) running += x;
  EXPECT_NEAR(tokens, 33, 1e-9);
  EXPECT_NEAR(running, 0.7 + 2.3 + 1 + 0.5, 1e-9);
}

TEST(Statistics, WaitingInTheGeneratorMakesLatenciesLonger) {
  load::Run run;
  run.records = {record(0, 1, 0.5, 2, 0.1)};
  run.records[0].intended = 0;
  const Summary s = summary_of(run, {});
  EXPECT_NEAR(s.ttft.mean, 1500, 1e-9);
  EXPECT_NEAR(s.ttft_from_sent.mean, 500, 1e-9);
  EXPECT_NEAR(s.send_lag.most, 1000, 1e-9);
}

TEST(Statistics, SayWhereUsageAndAnswersDisagree) {
  load::Run run;
  for (int i = 0; i < 5; ++i) run.records.push_back(record(i, 0, 0.1, 4, 0.1));
  run.records[0].output_tokens = -1;
  run.records[1].output_tokens = 3;
  run.records[2].asked_output = 3;
  run.records[3].input_tokens = 101;
  const Summary s = summary_of(run, {});
  EXPECT_EQ(s.completed, 5);
  EXPECT_EQ(s.mismatches.size(), 5U);
  for (const auto& [what, n] : s.mismatches) EXPECT_EQ(n, 1) << what;
  EXPECT_EQ(s.output_tokens, 4 + 3 + 4 + 4 + 4);
}

TEST(Statistics, AnObjectiveOfMeansFailsWithTheRequests) {
  load::Run run;
  run.records = {record(0, 0, 5, 11, 0.02), record(1, 0, 6.5, 11, 0.02)};
  EXPECT_EQ(summary_of(run, article_objective()).means_kept, true);
  EXPECT_EQ(summary_of(run, article_objective()).good, 1);
  run.records.push_back(failed(2, 0));
  EXPECT_EQ(summary_of(run, article_objective()).means_kept, false);
  run.records = {record(0, 0, 5, 11, 0.026)};
  EXPECT_EQ(summary_of(run, article_objective()).means_kept, false);
}

Measurement measurement(std::vector<Record> records, const std::string& label = "") {
  Measurement m;
  m.label = label;
  m.settings = {{"load", {{"seed", 1}}}, {"model_id", "<m>"}};
  m.objective = article_objective();
  m.run.records = std::move(records);
  m.summary = summary_of(m.run, m.objective);
  return m;
}

TEST(Reports, HoldTheNamesOfVllm) {
  Measurement m = measurement({record(0, 0, 0.5, 11, 0.02), failed(1, 0)});
  m.accepted_length = 2.5;
  const json::value v = json::parse(json_text({m}, true));
  for (const char* key : {"duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "p90_tpot_ms",
                          "mean_itl_ms",
                          "p95_itl_ms",
                          "mean_e2el_ms",
                          "p99_e2el_ms",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "errors",
                          "start_times",
                          "model_id",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests"})
    EXPECT_TRUE(v.as_object().contains(key)) << key;
  EXPECT_NEAR(v.at("mean_ttft_ms").as_double(), 500, 1e-9);
  EXPECT_NEAR(v.at("ttfts").at(0).as_double(), 0.5, 1e-12);
  EXPECT_EQ(v.at("itls").at(0).as_array().size(), 10U);
  EXPECT_EQ(v.at("errors").at(1).as_string(), "http 429: busy");
  EXPECT_EQ(v.at("errors_by_kind").at("http 429").as_int64(), 1);
  EXPECT_EQ(v.at("spec_decode_acceptance_length").as_double(), 2.5);
  EXPECT_FALSE(json::parse(json_text({m}, false)).as_object().contains("itls"));
  EXPECT_EQ(json::parse(json_text({m, m}, false)).at("runs").as_array().size(), 2U);
  const std::string text = text_of(m);
  for (const char* part : {"1 requests completed", "1 failed", "http 429, first: busy", "accepted length: 2.500", "missed"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(Reports, ThePageIsCompleteInItself) {
  Measurement m = measurement({record(0, 0, 0.5, 11, 0.02), record(1, 0.3, 0.7, 11, 0.03), failed(2, 0)}, "<one>");
  for (const auto& all : {std::vector<Measurement>{m}, std::vector<Measurement>{m, m}, {measurement({})}, {measurement({failed(0, 0)})}}) {
    const std::string page = page_of(all, "a & b");
    EXPECT_NE(page.find("a &amp; b"), std::string::npos);
    for (const char* part : {"<script", "src=", "href=", "@import", "url(", "nan", "inf\"", "<m>", "<one>"})
      EXPECT_EQ(page.find(part), std::string::npos) << part;
    EXPECT_NE(page.find("<svg"), std::string::npos);
    EXPECT_TRUE(page.ends_with("</html>\n"));
  }
}

constexpr int64_t kRequests = 60;  // five a second

// Twelve seconds of answers whose times vary by a tenth; `slower` makes them longer.
Figures figures(uint32_t seed, double slower, int64_t failures = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(1, 0.1);
  std::vector<Record> records;
  for (int64_t i = 0; i < kRequests; ++i)
    records.push_back(i < failures
                          ? failed(i, static_cast<double>(i) / 5)
                          : record(i, static_cast<double>(i) / 5, 0.2 * slower * noise(random), 20, 0.01 * slower * noise(random)));
  return parse_figures(json_text({measurement(std::move(records))}, false), "f").value().at(0);
}

const Change& change(const Comparison& c, const std::string& name) {
  for (const Change& x : c.changes)
    if (x.name == name) return x;
  ADD_FAILURE() << name;
  return c.changes.front();
}

TEST(Comparisons, TellApartWhatDiffers) {
  const Comparison c = compare(figures(1, 1), figures(2, 1.1));
  EXPECT_TRUE(c.paired);
  for (const char* name : {"mean TTFT ms", "p50 TTFT ms", "mean TPOT ms", "mean E2E ms"}) {
    EXPECT_TRUE(change(c, name).sure()) << name;
    EXPECT_NEAR(change(c, name).ratio, 1.1, 0.05);
    EXPECT_LT(change(c, name).low, change(c, name).ratio);
    EXPECT_GT(change(c, name).high, change(c, name).ratio);
  }
  EXPECT_FALSE(change(c, "output tokens/s").sure());
  EXPECT_EQ(text_of(c, "a", "b"), text_of(compare(figures(1, 1), figures(2, 1.1)), "a", "b"));
}

// A 95 % interval holds the truth about 95 times of 100; far fewer or always would be a wrong interval. The seeds are fixed.
TEST(Comparisons, HoldTheTruthAsOftenAsTheySay) {
  int held = 0;
  for (uint32_t i = 0; i < 20; ++i)
    held += change(compare(figures(100 + 2 * i, 1), figures(101 + 2 * i, 1)), "mean TTFT ms").sure() ? 0 : 1;
  EXPECT_GE(held, 17);
  const Comparison differs = compare(figures(1, 1), figures(2, 1, 15));
  EXPECT_EQ(change(differs, "mean TTFT ms").sure(), false);
  ASSERT_FALSE(differs.notes.empty());
  EXPECT_NE(differs.notes[0].find("0 and 15"), std::string::npos);
}

TEST(Comparisons, RefuseWhatTheyCannotRead) {
  for (const char* text : {"", "[]", "{}", "{\"runs\": []}", "{\"ttfts\": [1], \"tpots\": [1], \"e2els\": [1], \"errors\": []}"}) {
    const auto f = parse_figures(text, "name");
    ASSERT_FALSE(f.ok()) << text;
    EXPECT_NE(f.error().message.find("name"), std::string::npos);
  }
}

}  // namespace
}  // namespace baton::load
