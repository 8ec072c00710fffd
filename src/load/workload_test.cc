// Requests, arrivals and traces: the same seed asks the same, lengths and shares are those asked for, broken traces are named.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "load/arrivals.h"
#include "load/presets.h"
#include "load/request_body.h"
#include "load/trace.h"

namespace baton::load {
namespace {

namespace json = boost::json;

std::vector<int64_t> ids_of(const Prompt& prompt, const Vocabulary& vocabulary = {}) {
  std::vector<int64_t> out;
  const json::value ids = json::parse(ids_json(prompt, vocabulary));
  for (const json::value& v : ids.as_array()) out.push_back(v.as_int64());
  return out;
}

size_t common(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

std::string all_bodies(const Workload& workload, const RequestOptions& options) {
  std::string out;
  for (const Conversation& c : workload)
    for (const Turn& t : c.turns) out += body_of(t, options) + "\n";
  return out;
}

TEST(Prompts, TheSameSeedAsksTheSameAndAnotherDoesNot) {
  const auto bodies = [](uint64_t seed, Api api) {
    const Workload w = random_prompts({.prompts = 20, .input = 50, .output = 9, .prefix = 7, .range = {0.5, 1.5}, .seed = seed});
    return all_bodies(w, {.api = api, .model = "m"});
  };
  for (const Api api : {Api::kCompletions, Api::kChat}) {
    EXPECT_EQ(bodies(3, api), bodies(3, api));
    EXPECT_NE(bodies(3, api), bodies(4, api));
  }
}

TEST(Prompts, HaveTheLengthsAndIdsThatWereAskedFor) {
  const Workload w = random_prompts({.prompts = 300, .input = 100, .output = 10, .prefix = 20, .range = {0.9, 1.1}, .seed = 1});
  ASSERT_EQ(w.size(), 300U);
  int64_t shortest = 1000, longest = 0;
  std::vector<int64_t> first;
  std::map<int64_t, int> seen;
  for (const Conversation& c : w) {
    const Prompt& p = c.turns.at(0).prompt;
    const std::vector<int64_t> ids = ids_of(p, {.first = 1000, .count = 64});
    EXPECT_EQ(static_cast<int64_t>(ids.size()), p.tokens());
    for (const int64_t id : ids) ++seen[id];
    shortest = std::min(shortest, p.tokens());
    longest = std::max(longest, p.tokens());
    if (first.empty())
      first = ids;
    else
      EXPECT_EQ(std::vector(ids.begin(), ids.begin() + 20), std::vector(first.begin(), first.begin() + 20));
  }
  EXPECT_EQ(shortest, 110);
  EXPECT_EQ(longest, 130);
  EXPECT_EQ(seen.size(), 64U);
  EXPECT_EQ(seen.begin()->first, 1000);
  EXPECT_EQ(seen.rbegin()->first, 1063);
  // Exact lengths without a range.
  for (const Conversation& c : random_prompts({.prompts = 5, .input = 33, .output = 4})) {
    EXPECT_EQ(c.turns.at(0).prompt.tokens(), 33);
    EXPECT_EQ(c.turns.at(0).output_tokens, 4);
  }
}

TEST(Prompts, OfAGroupShareTheirPrefixAndNothingElse) {
  const Workload w = shared_prefixes({.groups = 3, .per_group = 4, .prefix = 64, .question = 16, .output = 8, .seed = 5});
  ASSERT_EQ(w.size(), 12U);
  std::map<std::vector<int64_t>, int> prefixes;
  std::vector<std::vector<int64_t>> all;
  for (const Conversation& c : w) {
    all.push_back(ids_of(c.turns.at(0).prompt));
    ASSERT_EQ(all.back().size(), 80U);
    ++prefixes[{all.back().begin(), all.back().begin() + 64}];
  }
  EXPECT_EQ(prefixes.size(), 3U);
  for (const auto& [prefix, n] : prefixes) EXPECT_EQ(n, 4);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_LT(common(all[i], all[j]), 68U);
  EXPECT_NEAR(shared_share(w), (12.0 - 3) * 64 / (12 * 80), 1e-12);

  // Zipf: the first group comes most often, in the mean 1000 / (1 + 1/2 + 1/3 + 1/4) times.
  std::map<std::vector<int64_t>, int> drawn;
  for (const Conversation& c : shared_prefixes({.groups = 4, .per_group = 250, .prefix = 4, .question = 1, .zipf = 1, .seed = 6}))
    ++drawn[ids_of({.stretches = {c.turns.at(0).prompt.stretches.at(0)}})];
  int most = 0;
  for (const auto& [prefix, n] : drawn) most = std::max(most, n);
  EXPECT_NEAR(most, 480, 80);
}

TEST(Agents, RepeatTheirPastAndShareTheirTools) {
  const Workload w = agents({.agents = 3, .turns = 4, .system = 40, .task = 10, .result = 20, .output = 5, .delay_s = 2, .seed = 9});
  ASSERT_EQ(w.size(), 3U);
  for (const Conversation& c : w) {
    ASSERT_EQ(c.turns.size(), 4U);
    EXPECT_EQ(c.turns[0].delay_s, 0);
    std::vector<int64_t> before;
    for (size_t t = 0; t < 4; ++t) {
      const std::vector<int64_t> ids = ids_of(c.turns[t].prompt);
      EXPECT_EQ(ids.size(), 50 + t * 25);
      EXPECT_EQ(common(before, ids), before.size());
      before = ids;
    }
  }
  EXPECT_EQ(common(ids_of(w[0].turns[0].prompt), ids_of(w[1].turns[0].prompt)), 40U);
  // As a chat: the system prompt, then user and assistant in turn.
  const json::value body = json::parse(body_of(w[0].turns[2], {.api = Api::kChat, .model = "m"}));
  std::string roles;
  for (const json::value& m : body.at("messages").as_array()) roles += m.at("role").as_string()[0];
  EXPECT_EQ(roles, "suauau");
}

TEST(Bodies, HoldWhatWasAskedAndExtraMembersWin) {
  const Turn turn{.prompt = {.stretches = {{.key = 1, .tokens = 3}}}, .output_tokens = 17};
  RequestOptions o{.model = "m", .extra = {{"temperature", 0.5}, {"top_k", 4}}};
  const json::value body = json::parse(body_of(turn, o));
  EXPECT_EQ(body.at("prompt").as_array().size(), 3U);
  EXPECT_EQ(body.at("max_tokens").as_int64(), 17);
  EXPECT_EQ(body.at("temperature").as_double(), 0.5);
  EXPECT_EQ(body.at("top_k").as_int64(), 4);
  EXPECT_TRUE(body.at("stream").as_bool());
  EXPECT_TRUE(body.at("stream_options").at("include_usage").as_bool());
  EXPECT_TRUE(body.at("ignore_eos").as_bool());
  o.ignore_eos = false;
  o.ids = false;
  const json::value text = json::parse(body_of(turn, o));
  EXPECT_FALSE(text.as_object().contains("ignore_eos"));
  EXPECT_EQ(std::count(text.at("prompt").as_string().begin(), text.at("prompt").as_string().end(), ' '), 2);
  o.host = "h:1";
  o.target = "/v1/completions";
  o.headers = {{"Authorization", "Bearer k"}};
  const std::string bytes = request_bytes(turn, o);
  EXPECT_TRUE(bytes.starts_with("POST /v1/completions HTTP/1.1\r\nHost: h:1\r\n")) << bytes;
  EXPECT_NE(bytes.find("\r\nAuthorization: Bearer k\r\n"), std::string::npos);
  EXPECT_NE(bytes.find("\r\nContent-Length: " + std::to_string(body_of(turn, o).size()) + "\r\n\r\n"), std::string::npos);
}

// Mean and coefficient of variation of the gaps, against those of the gamma distribution.
TEST(Arrivals, HaveTheRateAndTheBurstiness) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const std::vector<double> at = arrivals(40'001, {.rate = 20, .burstiness = burstiness, .seed = 1});
    std::vector<double> gaps;
    for (size_t i = 1; i < at.size(); ++i) gaps.push_back(at[i] - at[i - 1]);
    const double mean = std::accumulate(gaps.begin(), gaps.end(), 0.0) / 40'000;
    double square = 0;
    for (const double g : gaps) square += (g - mean) * (g - mean) / 40'000;
    EXPECT_NEAR(mean * 20, 1, 0.05) << burstiness;
    EXPECT_NEAR(std::sqrt(square) / mean * std::sqrt(burstiness), 1, 0.05) << burstiness;
    EXPECT_EQ(at, arrivals(40'001, {.rate = 20, .burstiness = burstiness, .seed = 1}));
  }
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> even = arrivals(5, {.rate = 4, .burstiness = inf});
  for (size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(even[i], static_cast<double>(i) / 4);
  // A ramp: its first gap is that of its first rate, its last that of its last.
  for (const Ramp ramp : {Ramp::kLinear, Ramp::kExponential}) {
    const std::vector<double> up = arrivals(100, {.burstiness = inf, .ramp = ramp, .start_rate = 1, .end_rate = 8});
    EXPECT_NEAR(up[1] - up[0], 1, 1e-9);
    EXPECT_NEAR(up[99] - up[98], 1.0 / 8, 1e-9);
    EXPECT_NEAR(up[50] - up[49], ramp == Ramp::kLinear ? 1 / 4.5 : 1 / std::sqrt(8), 0.01);
  }
}

TEST(Traces, GiveTimesLengthsAndSharedBlocks) {
  const std::string text =
      "{\"timestamp\": 5000, \"input_length\": 20, \"output_length\": 3, \"hash_ids\": [1, 2, 3]}\r\n\n"
      "{\"timestamp\": 6500, \"input_length\": 30, \"output_length\": 4, \"hash_ids\": [1, 2, 9]}\n"
      "{\"timestamp\": 6500, \"input_length\": 5, \"output_length\": 1}";
  const auto w = mooncake_trace(text, "t", {.slowdown = 2, .block = 8, .seed = 1});
  ASSERT_TRUE(w.ok()) << w.error().message;
  ASSERT_EQ(w->size(), 3U);
  const auto& a = (*w)[0].turns.at(0);
  const auto& b = (*w)[1].turns.at(0);
  EXPECT_EQ((*w)[0].arrival_s, 0);
  EXPECT_EQ((*w)[1].arrival_s, 3);
  EXPECT_EQ(a.output_tokens, 3);
  EXPECT_EQ(ids_of(a.prompt).size(), 20U);
  EXPECT_EQ(ids_of(b.prompt).size(), 30U);
  EXPECT_EQ(common(ids_of(a.prompt), ids_of(b.prompt)), 16U);
  EXPECT_EQ(mooncake_trace(text, "t", {.prompts = 2, .block = 8})->size(), 2U);

  const auto custom = custom_prompts("{\"prompt\": \"a b\"}\n{\"prompt\": \"c\", \"output_tokens\": 5}\n", "c", {.output = 9});
  ASSERT_TRUE(custom.ok());
  EXPECT_EQ((*custom)[0].turns.at(0).output_tokens, 9);
  EXPECT_EQ((*custom)[1].turns.at(0).output_tokens, 5);
  EXPECT_EQ(json::parse(body_of((*custom)[0].turns.at(0), {})).at("prompt").as_string(), "a b");
}

TEST(Traces, ThatAreBrokenAreNamedByLine) {
  const std::string good = "{\"timestamp\": 1, \"input_length\": 4, \"output_length\": 1}\n";
  for (const auto& [line, part] : std::map<std::string, std::string>{
           {"nonsense", "JSON"},
           {"[]", "JSON"},
           {"{\"timestamp\": -1, \"input_length\": 4, \"output_length\": 1}", "timestamp"},
           {"{\"timestamp\": 0, \"input_length\": 4, \"output_length\": 1}", "sort"},
           {"{\"timestamp\": 1e400, \"input_length\": 4, \"output_length\": 1}", "timestamp"},
           {"{\"timestamp\": 2, \"input_length\": 0, \"output_length\": 1}", "input_length"},
           {"{\"timestamp\": 2, \"input_length\": 4.5, \"output_length\": 1}", "input_length"},
           {"{\"timestamp\": 2, \"input_length\": 4, \"output_length\": 1e30}", "output_length"},
           {"{\"timestamp\": 2, \"input_length\": 4, \"output_length\": 1, \"hash_ids\": 3}", "hash_ids"},
           {"{\"timestamp\": 2, \"input_length\": 4, \"output_length\": 1, \"hash_ids\": [\"x\"]}", "hash_ids"},
           {"{\"timestamp\": 2, \"input_length\": 4, \"output_length\": 1, \"hash_ids\": [1, 2]}", "blocks"}}) {
    const auto w = mooncake_trace(good + line, "file", {});
    ASSERT_FALSE(w.ok()) << line;
    EXPECT_NE(w.error().message.find("file:2"), std::string::npos) << w.error().message;
    EXPECT_NE(w.error().message.find(part), std::string::npos) << w.error().message;
  }
  EXPECT_FALSE(mooncake_trace("\n", "file", {}).ok());
  EXPECT_FALSE(custom_prompts("{\"prompt\": \"\"}", "file", {}).ok());
}

TEST(Presets, AreThePublishedLoads) {
  const auto share = [](const char* name) {
    const Preset& p = *find_preset(name);
    EXPECT_EQ(p.shared + p.own, 65'536) << name;
    return 100.0 * static_cast<double>(p.shared) / static_cast<double>(p.shared + p.own);
  };
  EXPECT_EQ(share("article-prefill"), 0);
  EXPECT_EQ(find_preset("article-prefill")->output, 10);
  EXPECT_EQ(find_preset("article-prefill")->concurrency, 2);
  EXPECT_NEAR(share("article-decode"), 99.9, 0.01);
  EXPECT_EQ(share("article-3p1d-0"), 0);
  EXPECT_EQ(share("article-3p1d-50"), 50);
  EXPECT_EQ(share("article-3p1d-93.75"), 93.75);
  for (const Preset& p : presets()) EXPECT_EQ(shared_prefixes(load_of(p, 3, 1)).at(0).turns.at(0).prompt.tokens(), p.shared + p.own);
  EXPECT_EQ(find_preset("none"), nullptr);
}

}  // namespace
}  // namespace baton::load
