#include "router/fleet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/test_seed.h"
#include "router/prompt_blocks.h"

namespace baton::router {
namespace {

std::string chat(const std::string& text, const std::string& before = {}, const std::string& behind = {}) {
  return fmt::format(R"({{{}"messages":[{{"role":"user","content":"{}"}}]{}}})", before, text, behind);
}

size_t shared(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

TEST(PromptBlocks, OnlyThePromptCounts) {
  const std::string text(5000, 'x');
  const auto plain = prompt_blocks(chat(text), "key");
  EXPECT_EQ(plain.size(), 9U);
  EXPECT_EQ(prompt_blocks(chat(text, R"("seed": 5, "stop":["]}","\""], "user": {"a":[1,{}]}, )"), "key"), plain);
  EXPECT_EQ(prompt_blocks(chat(text, {}, R"(,"seed":6,"x":null)"), "key"), plain);
  EXPECT_EQ(shared(prompt_blocks(chat(text), "other"), plain), 0U) << "tenants are apart";
  EXPECT_EQ(shared(prompt_blocks(chat(text, R"("tools":[{"a":1}],)"), "key"), plain), 0U) << "tools stand in front";
  EXPECT_EQ(shared(prompt_blocks(chat(text + "!"), "key"), plain), 9U);
  // A turn more keeps the blocks in front of it.
  const std::string longer = fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}},{{"role":"assistant","content":"y"}}]}})", text);
  EXPECT_EQ(shared(prompt_blocks(longer, "key"), plain), 9U);
}

TEST(PromptBlocks, AnyBytes) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  const std::string alphabet = "{}[]\",:\\ a1\n";
  const std::string valid = chat(std::string(2000, 'z'), R"("a":{"b":["c"]},)");
  for (int i = 0; i < 20'000; ++i) {
    std::string body;
    if (i % 2 == 0) {
      for (uint64_t n = random() % 40; n > 0; --n) body += alphabet[random() % alphabet.size()];
    } else {
      body = valid.substr(0, random() % (valid.size() + 1));
      if (!body.empty()) body[random() % body.size()] = alphabet[random() % alphabet.size()];
    }
    EXPECT_LE(prompt_blocks(body, "").size(), kMostBlocks);
  }
  EXPECT_EQ(prompt_blocks(chat(std::string(kMostBlocks * kBlockBytes * 2, 'a')), "").size(), kMostBlocks);
}

TEST(Affinity, RemembersWhatWasUsedLast) {
  Affinity table(64);
  std::vector<int32_t> matched(kMostInstances);
  std::vector<uint64_t> prompt{1, 2, 3, 4, 5};
  table.record(std::span(prompt).first(3), 7);
  table.record(prompt, 9);
  table.match(prompt, matched);
  EXPECT_EQ(matched[7], 3);
  EXPECT_EQ(matched[9], 5);
  EXPECT_EQ(matched[0], 0);
  // A beginning that was not sent there ends the match, whatever follows.
  prompt[1] = 99;
  table.match(prompt, matched);
  EXPECT_EQ(matched[9], 1);
  table.forget(9);
  table.match(prompt, matched);
  EXPECT_EQ(matched[9], 0);
  EXPECT_EQ(matched[7], 1);
  // Any number of prompts fits.
  for (uint64_t i = 0; i < 10'000; ++i) {
    const uint64_t block = i * 0x9E3779B97F4A7C15;
    table.record({&block, 1}, 1);
    table.match({&block, 1}, matched);
    ASSERT_EQ(matched[1], 1) << "the last one is there";
  }
}

TEST(Breaker, OpensTriesAndCloses) {
  Breaker b({.failures = 3, .open_ms = 100, .most_open_ms = 300});
  for (int i = 0; i < 2; ++i) b.failed(0, 0);
  EXPECT_TRUE(b.lets(0));
  b.succeeded();
  for (int i = 0; i < 3; ++i) b.failed(0, 0);
  EXPECT_FALSE(b.lets(99));
  EXPECT_TRUE(b.lets(100));
  b.sent(100);
  EXPECT_FALSE(b.lets(100)) << "one trial at a time";
  b.undecided();
  EXPECT_TRUE(b.lets(100)) << "the client went; the trial is made again";
  b.sent(100);
  b.failed(100, 0);
  EXPECT_FALSE(b.lets(299)) << "twice as long";
  b.sent(300);
  b.failed(300, 0);
  EXPECT_TRUE(b.lets(600)) << "no longer than the most";
  b.sent(600);
  b.succeeded();
  EXPECT_TRUE(b.lets(600));
}

TEST(Fleet, LoadDecidesUnlessTheCacheIsWorthIt) {
  Fleet fleet({.slack = 2});
  for (const char* url : {"http://a:1", "http://b:1", "http://c:1"}) {
    const auto i = fleet.add(url, 0);
    ASSERT_TRUE(i.ok());
    EXPECT_FALSE(fleet.choose({}, {}, 0, 0).has_value()) << "nobody has been probed";
  }
  for (int i = 0; i < 3; ++i) fleet.probed(i, true, "", 0);
  EXPECT_FALSE(fleet.add("http://a:1", 0).ok()) << "twice";
  const std::vector<uint64_t> prompt{1, 2, 3};
  fleet.sent(1, prompt, 0, 0);
  fleet.sent(1, {}, 0, 0);
  EXPECT_EQ(fleet.choose(prompt, {}, 0, 0)->instance, 1) << "within the slack";
  EXPECT_EQ(fleet.choose(prompt, {}, 0, 0)->matched, 3);
  EXPECT_NE(fleet.choose({}, {}, 0, 0)->instance, 1) << "nothing to gain";
  fleet.sent(1, {}, 0, 0);
  EXPECT_NE(fleet.choose(prompt, {}, 0, 0)->instance, 1) << "too full";
  const std::vector<int> tried{0, 2};
  EXPECT_EQ(fleet.choose(prompt, tried, 0, 0)->instance, 1);
  fleet.probed(1, false, "draining", 0);
  EXPECT_FALSE(fleet.choose(prompt, tried, 0, 0).has_value());
}

TEST(Fleet, SilenceGivesUpWhatRunsThere) {
  Fleet fleet({.silence_ms = 1000});
  ASSERT_TRUE(fleet.add("http://a:1", 0).ok());
  fleet.probed(0, true, "", 0);
  fleet.sent(0, {}, 0, 0);
  fleet.unreachable(0, "silent", false, 500);
  EXPECT_TRUE(fleet.lost(999).empty());
  EXPECT_EQ(fleet.lost(1000), std::vector<int>{0});
  fleet.probed(0, true, "", 1001);
  EXPECT_TRUE(fleet.lost(5000).empty());
  fleet.unreachable(0, "silent", false, 5000);
  fleet.slept(4000);
  EXPECT_TRUE(fleet.lost(5500).empty()) << "it was the router that slept";
  EXPECT_FALSE(fleet.lost(6100).empty());
  // One that drains refuses connections, and what runs there goes on.
  fleet.unreachable(0, "refused", true, 5000);
  fleet.unreachable(0, "refused", true, 5900);
  EXPECT_TRUE(fleet.lost(6500).empty());
}

TEST(Fleet, RegisteredInstancesComeAndGo) {
  Fleet fleet({.heard_ms = 1000});
  for (int i = 0; i < kMostInstances; ++i) ASSERT_TRUE(fleet.register_instance(fmt::format("http://a:{}", i), 1, 0, 0).ok());
  EXPECT_FALSE(fleet.register_instance("http://more:1", 1, 0, 0).ok()) << "the table is full";
  fleet.probed(5, true, "", 0);
  const std::vector<uint64_t> prompt{1, 2};
  fleet.sent(5, prompt, 0, 0);
  ASSERT_TRUE(fleet.register_instance("http://a:5", 1, 4, 500).ok());
  EXPECT_EQ(fleet.instances()[5].load(), 4) << "one is ours, three are of others";
  EXPECT_EQ(fleet.choose(prompt, {}, 0, 500)->matched, 2);
  ASSERT_TRUE(fleet.register_instance("http://a:5", 2, 0, 500).ok());
  EXPECT_EQ(fleet.choose(prompt, {}, 0, 500)->matched, 0) << "a new process has an empty cache";
  // All others have not repeated themselves.
  fleet.lost(1400);
  EXPECT_TRUE(fleet.known(5));
  EXPECT_FALSE(fleet.known(6));
  EXPECT_TRUE(fleet.register_instance("http://more:1", 1, 0, 1400).ok());
  fleet.leave("http://a:5");
  EXPECT_TRUE(fleet.known(5)) << "a request runs there";
  EXPECT_FALSE(fleet.choose({}, {}, 0, 1400).has_value());
  fleet.ended(5, Outcome::kServed, 0, 1500);
  EXPECT_FALSE(fleet.known(5));
}

// Against a plain model: what may be chosen, and that everything returns to zero.
TEST(Fleet, RandomOperations) {
  const uint64_t seed = test_seed();
  for (uint64_t round = 0; round < 60; ++round) {
    std::mt19937_64 random(seed + round);
    const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
    const FleetOptions options{
        .silence_ms = 700, .heard_ms = 900, .slack = below(6), .slack_share = 0.1 * below(4), .affinity_entries = 256};
    Fleet fleet(options);
    TimeMs now = 1000;
    const auto url = [&] { return fmt::format("http://i:{}", 1 + below(10)); };
    std::vector<std::pair<int, TimeMs>> open;  // requests
    int64_t sent = 0, ended = 0;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(fleet.add(fmt::format("http://static:{}", i + 1), now).ok());
    for (int step = 0; step < 2000; ++step) {
      now += below(50);
      switch (below(8)) {
        case 0: ASSERT_TRUE(fleet.register_instance(url(), static_cast<uint64_t>(1 + below(3)), below(20), now).ok()); break;
        case 1:
          if (below(4) == 0) fleet.leave(url());
          break;
        case 2:
        case 3:
          for (int i = 0; i < kMostInstances; ++i) {
            if (!fleet.known(i)) continue;
            if (below(10) > 0)
              fleet.probed(i, below(10) > 0, "why", now);
            else
              fleet.unreachable(i, "why", below(2) == 0, now);
          }
          break;
        case 4:
          for (const int lost : fleet.lost(now)) {
            ASSERT_EQ(fleet.instances()[static_cast<size_t>(lost)].health, Health::kDown);
            for (size_t k = open.size(); k-- > 0;) {
              if (open[k].first != lost) continue;
              open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
              ++ended;
              fleet.ended(lost, Outcome::kFailed, 0.5, now);
            }
          }
          break;
        case 5:
        case 6: {
          std::vector<uint64_t> blocks;
          for (int n = below(6); n >= 0; --n) blocks.push_back(random() % 3 + blocks.size() * 10 + 1);
          std::vector<int> tried;
          while (below(3) == 0) tried.push_back(below(12));
          const auto choice = fleet.choose(blocks, tried, random(), now);
          int64_t least = INT64_MAX;
          for (int i = 0; i < kMostInstances; ++i) {
            const Instance& x = fleet.instances()[static_cast<size_t>(i)];
            if (!x.url.empty() && !x.leaving && x.health == Health::kReady && x.breaker.lets(now) &&
                std::find(tried.begin(), tried.end(), i) == tried.end())
              least = std::min(least, x.load());
          }
          ASSERT_EQ(choice.has_value(), least != INT64_MAX) << "BATON_SEED=" << seed + round;
          if (!choice) break;
          const Instance& x = fleet.instances()[static_cast<size_t>(choice->instance)];
          ASSERT_EQ(x.health, Health::kReady);
          ASSERT_FALSE(x.leaving);
          ASSERT_EQ(std::find(tried.begin(), tried.end(), choice->instance), tried.end());
          ASSERT_LE(x.load(), least + std::max(options.slack, static_cast<int64_t>(options.slack_share * static_cast<double>(least))));
          ASSERT_LE(choice->matched, static_cast<int32_t>(blocks.size()));
          fleet.sent(choice->instance, blocks, choice->matched, now);
          open.emplace_back(choice->instance, now);
          ++sent;
          break;
        }
        case 7: {
          if (open.empty()) break;
          const auto k = static_cast<std::ptrdiff_t>(random() % open.size());
          const int i = open[static_cast<size_t>(k)].first;
          open.erase(open.begin() + k);
          if (below(3) == 0) fleet.answering(i);
          fleet.ended(i, static_cast<Outcome>(below(4)), 0.5, now);
          ++ended;
          break;
        }
      }
      ASSERT_EQ(fleet.open(), static_cast<int32_t>(open.size()));
    }
    for (const auto& [i, at] : open) fleet.ended(i, Outcome::kUndecided, 0, now), ++ended;
    ASSERT_EQ(sent, ended);
    ASSERT_EQ(fleet.open(), 0);
    // Whoever came by itself is gone once nothing is heard of it; those of the list stay.
    for (int i = 0; i < kMostInstances; ++i)
      if (fleet.known(i)) fleet.unreachable(i, "", false, now);
    fleet.lost(now + 100'000);
    for (int i = 0; i < kMostInstances; ++i) ASSERT_EQ(fleet.known(i), i < 3);
    // And all that is well is chosen again in the end.
    for (int i = 0; i < 3; ++i) fleet.probed(i, true, "", now + 100'000);
    ASSERT_EQ(fleet.ready(now + 200'000), 3);
  }
}

TEST(Fleet, PrefillInstancesAreNamedAndGetNoRequests) {
  Fleet fleet;
  const int p = *fleet.add("http://p", 0, Role::kPrefill), q = *fleet.add("http://q", 0, Role::kPrefill);
  const int d = *fleet.add("http://d", 0, Role::kDecode);
  EXPECT_EQ(fleet.ready_prefills(), "");
  fleet.probed(p, true, "", 0);
  EXPECT_EQ(fleet.ready_prefills(), "http://p");
  EXPECT_EQ(fleet.ready(0), 0);
  EXPECT_FALSE(fleet.choose({}, {}, 0, 0).has_value());
  fleet.probed(q, true, "", 0);
  EXPECT_EQ(fleet.ready_prefills(), "http://p,http://q");
  fleet.probed(d, true, "", 0);
  EXPECT_EQ(fleet.choose({}, {}, 0, 0)->instance, d);
  fleet.unreachable(p, "silent", false, 0);
  EXPECT_EQ(fleet.ready_prefills(), "http://q");
}

TEST(Fleet, FiguresAreReadFromWhatAnInstanceSays) {
  const Figures f = read_figures(R"({"status":"ok","running":3,"waiting":12,"cached":0.5000,"hand_over_ms":7.125})");
  EXPECT_EQ(f.running, 3);
  EXPECT_EQ(f.waiting, 12);
  EXPECT_EQ(f.cached, 0.5);
  EXPECT_EQ(f.hand_over_ms, 7.125);
  for (const char* odd : {"", "ok", R"({"running":-1,"cached":7})", R"({"running":"many","waiting":1e300,"hand_over_ms":nan})"}) {
    const Figures none = read_figures(odd);
    EXPECT_EQ(none.running + none.waiting, 0) << odd;
    EXPECT_LE(none.cached, 1) << odd;
    EXPECT_EQ(none.hand_over_ms, 0) << odd;
  }
}

}  // namespace
}  // namespace baton::router
