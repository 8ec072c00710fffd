// The promise of speculation on the CPU with float state: what a request gets, to the bit of its log-probabilities, is what it gets
// without, whatever is drafted, and whatever else happens to it.
#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "base/random.h"
#include "base/test_seed.h"
#include "engine/scripted_drafter.h"
#include "engine/slot_sampling.h"
#include "engine/world.h"

namespace baton::testing {
namespace {

constexpr const char* kFolder = "mtp";

int64_t vocabulary() {
  static const int64_t v = model::Checkpoint::open(golden_dir(kFolder))->config().vocab_size;
  return v;
}

std::vector<RequestSpec> specs(size_t count, uint32_t seed) { return make_specs(count, seed, vocabulary()); }

// Without drafts; by itself, so that nothing can be owed to neighbours or caches.
std::vector<Answer> plain(const std::vector<RequestSpec>& all, bool constrain = false, LocalOptions o = small_options(1)) {
  std::vector<Answer> answers;
  World w(o, kFolder);
  w.constrain = constrain;
  for (RequestSpec s : all) {
    s.cache_prompt = false;
    answers.push_back(w.ask(s));
  }
  return answers;
}

std::vector<std::vector<int32_t>> texts_of(const std::vector<RequestSpec>& all, const std::vector<Answer>& answers) {
  std::vector<std::vector<int32_t>> texts;
  for (size_t i = 0; i < all.size(); ++i)
    for (const auto& tokens : answers[i].tokens) {
      texts.push_back(all[i].prompt);
      texts.back().insert(texts.back().end(), tokens.begin(), tokens.end());
    }
  return texts;
}

// A number of a place, the same whenever it is asked for.
uint32_t at_random(uint32_t seed, int32_t position) { return philox(seed, {static_cast<uint32_t>(position), 0, 0, 0})[0]; }

// Right drafts as often as `seed` says, none in every fifth step, and fewer than asked for in others.
Script at_random(const std::vector<std::vector<int32_t>>& texts, uint32_t seed) {
  return {texts, [seed](int32_t p, int32_t count) { return static_cast<int32_t>(at_random(seed, p) % static_cast<uint32_t>(count + 1)); },
          [seed](int32_t p, int32_t count) {
            const uint32_t r = at_random(seed + 1, p);
            return r % 5 == 0 ? 0 : r % 5 == 1 ? static_cast<int32_t>(r / 5 % static_cast<uint32_t>(count)) : count;
          }};
}

LocalOptions with(LocalOptions o, const Script& script) {
  o.drafter = scripted(script);
  return o;
}
constexpr const char* kDrafters[] = {"NEXTN", "DFLASH"};

LocalOptions with(LocalOptions o, const std::string& drafter, int32_t steps = 7) {
  o.speculation.algorithm = drafter;
  o.speculation.steps = steps;
  if (drafter == "DFLASH") o.speculation.draft_model = BATON_TEST_DATA "/drafters/dflash2";
  return o;
}

TEST(Speculation, EveryLengthOfAcceptanceGivesTheSameText) {
  const std::vector<RequestSpec> all = specs(12, 21);
  const std::vector<Answer> wanted = plain(all);
  Script script{texts_of(all, wanted), {}, {}};
  for (int32_t right = 0; right <= 7; ++right) {
    script.right = [right](int32_t, int32_t count) { return std::min(right, count); };
    World w(with(small_options(12), script), kFolder);
    const std::vector<Answer> got = w.ask_all(all);
    expect_equal(got, wanted, fmt::format("{} right", right).c_str());
    if (HasFatalFailure()) return;
    const speculate::Metrics m = w.metrics().speculation;
    sched::Usage told;
    int64_t cycles = 0;
    for (const Answer& a : got) {
      told.drafted_tokens += a.usage[0].drafted_tokens;
      told.accepted_tokens += a.usage[0].accepted_tokens;
      cycles += a.usage[0].generated_tokens - 1 - a.usage[0].accepted_tokens;
      EXPECT_LE(a.usage[0].accepted_tokens, std::min(a.usage[0].drafted_tokens, a.usage[0].generated_tokens - 1));
    }
    EXPECT_EQ(told.drafted_tokens, m.drafted);
    EXPECT_EQ(cycles, m.blocks);
    EXPECT_TRUE(right == 0 ? told.accepted_tokens == 0 : told.accepted_tokens > 0 && told.accepted_tokens <= m.accepted);
    EXPECT_GT(m.blocks_of[static_cast<size_t>(right) + 1], 0) << "no block of this length came";
    EXPECT_GT(m.drafted, 0);
  }
}

TEST(Speculation, RandomAcceptanceWithFormsRetractionAndReturnGivesTheSameText) {
  const uint32_t seed = test_seed();
  std::vector<RequestSpec> all = specs(10, 22);
  for (RequestSpec& s : all) s.max_tokens = 150;
  const std::vector<Answer> wanted = plain(all, true);
  const Script script = at_random(texts_of(all, wanted), seed);
  int64_t retracted = 0;
  for (const int64_t host_bytes : {int64_t{0}, int64_t{64} << 20}) {
    LocalOptions o = with(small_options(6), script);
    o.pool_tokens = 8 * 64;  // three or four of the ten begin together and have no room to end together
    o.snapshots = 3;
    o.growth_tokens = 1;
    o.host_bytes = host_bytes;
    o.plan_ahead = host_bytes > 0;
    World w(o, kFolder);
    w.constrain = true;
    expect_equal(w.ask_all(all), wanted, "first");
    expect_equal(w.ask_all(all), wanted, "again");
    if (HasFatalFailure()) return;
    const sched::Metrics m = w.metrics();
    retracted += m.retractions_to_host + m.retractions_recomputed;
    EXPECT_GT(m.speculation.accepted, 0);
    EXPECT_EQ(m.slots_free, m.slots);
    EXPECT_EQ(m.pages_held, 0);
  }
  EXPECT_GT(retracted, 0);
}

// Stop tokens, min_tokens, max_tokens and the end of the context, all inside blocks.
TEST(Speculation, WhateverEndsATextEndsItInsideABlock) {
  std::vector<RequestSpec> all = specs(16, 23);
  const std::vector<Answer> free = plain(all);
  for (size_t i = 0; i < all.size(); ++i) {
    RequestSpec& s = all[i];
    const auto& tokens = free[i].tokens[0];
    if (i % 4 == 0) s.stop_tokens = {tokens[tokens.size() / 2]};
    if (i % 4 == 1) s.stop_tokens = {tokens[1]}, s.min_tokens = 7;
    if (i % 4 == 2) s.max_tokens = 1 + static_cast<int64_t>(i);
    if (i % 4 == 3) {
      s.max_tokens = sched::kUnlimited;
      s.prompt.resize(350 + i * 10, 3);
    }
  }
  LocalOptions o = small_options(16);
  o.context_tokens = 511 - 100;  // 411: no multiple of anything
  for (RequestSpec& s : all) s.prompt.resize(std::min<size_t>(s.prompt.size(), 400));
  LocalOptions one = small_options(1);
  one.context_tokens = o.context_tokens;
  const std::vector<Answer> wanted = plain(all, false, one);
  for (const int32_t right : {3, 7}) {
    const Script script{texts_of(all, wanted), [right](int32_t, int32_t count) { return std::min(right, count); }, {}};
    World w(with(o, script), kFolder);
    const std::vector<Answer> got = w.ask_all(all);
    expect_equal(got, wanted, fmt::format("{} right", right).c_str());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].usage[0].generated_tokens, std::ssize(wanted[i].tokens[0]));
  }
}

TEST(Speculation, ChoicesForkedFromOnePromptDraftEachForItself) {
  for (const size_t length : {size_t{1}, size_t{64}, size_t{65}, size_t{200}}) {
    RequestSpec spec = specs(1, 24).front();
    spec.prompt.resize(length, 7);
    spec.max_tokens = 60;
    spec.choices = 3;
    std::vector<RequestSpec> each;
    for (int32_t c = 0; c < spec.choices; ++c) {
      each.push_back(spec);
      each.back().choices = 1;
      each.back().sampling.seed = engine::seed_of_choice(spec.sampling.seed, c);
    }
    const std::vector<Answer> wanted = plain(each);
    for (const std::string drafter : kDrafters) {
      World w(with(small_options(4), drafter), kFolder);
      const Answer got = w.ask(spec);
      for (size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(got.tokens[c], wanted[c].tokens[0]) << "choice " << c << " of a prompt of " << length << ", " << drafter;
        EXPECT_EQ(got.bits[c], wanted[c].bits[0]);
      }
    }
  }
}

TEST(Speculation, WithDraftersColdAndWarmAloneAndTogetherAreWhatTheyAreWithout) {
  for (const int32_t running : {1, 32}) {
    const std::vector<RequestSpec> all = specs(running == 1 ? 6 : 32, 25);
    const std::vector<Answer> wanted = plain(all);
    for (const std::string drafter : kDrafters) {
      LocalOptions o = with(small_options(running), drafter);
      o.snapshots = 2 * running + 8;  // a prompt's and an answer's of each: with fewer, going round evicts what comes next
      World w(o, kFolder);
      expect_equal(w.ask_all(all), wanted, fmt::format("{}, cold, {} at once", drafter, running).c_str());
      const int64_t before = w.metrics().tokens_matched_state;
      expect_equal(w.ask_all(all), wanted, fmt::format("{}, warm", drafter).c_str());
      if (HasFatalFailure()) return;
      EXPECT_GT(w.metrics().tokens_matched_state, before);
      EXPECT_GT(w.metrics().speculation.drafted, 0);
    }
  }
}

TEST(Speculation, ChunksStepsAndPlanningAheadDoNotMatter) {
  const std::vector<RequestSpec> all = specs(10, 26);
  const std::vector<Answer> wanted = plain(all, true);
  for (const int64_t budget : {5, 64, 100}) {
    LocalOptions o = with(small_options(5), budget == 64 ? "DFLASH" : "NEXTN", 1 + static_cast<int32_t>(budget % 7));
    o.prefill_tokens = budget;
    o.plan_ahead = budget != 64;
    o.speculation.adaptive = budget == 100;
    World w(o, kFolder);
    w.constrain = true;
    expect_equal(w.ask_all(all), wanted, fmt::format("budget {}", budget).c_str());
    if (HasFatalFailure()) return;
  }
}

TEST(Speculation, ThoseWhoAreCancelledLeaveTheOthersAsTheyAre) {
  const std::vector<RequestSpec> all = specs(12, 27);
  const std::vector<Answer> wanted = plain(all);
  World w(with(small_options(6), "NEXTN"), kFolder);
  std::vector<std::unique_ptr<GatheringSink>> sinks;
  std::vector<sched::RequestId> ids;
  for (const RequestSpec& s : all) {
    sinks.push_back(std::make_unique<GatheringSink>(1, true));
    ids.push_back(*w.local->engine().submit(s, *sinks.back()));
  }
  for (size_t i = 0; i < ids.size(); i += 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    w.local->engine().cancel(ids[i]);
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->wait();
    const auto& got = sinks[i]->choices()[0];
    EXPECT_EQ(got.ends, 1);
    if (i % 2 == 1) {
      EXPECT_EQ(got.tokens, wanted[i].tokens[0]);
    } else {
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), wanted[i].tokens[0].begin()));
    }
  }
  const sched::Metrics m = w.metrics();
  EXPECT_EQ(m.pages_held, 0);
  EXPECT_EQ(m.slots_free, m.slots);
}

// Each turn starts behind the answer of the one before, from a state that was left at a page edge, where a block ended for its sake.
TEST(Speculation, TheNextTurnOfAConversationStartsBehindTheAnswer) {
  World w(with(small_options(4), "NEXTN"), kFolder);
  converse(w, specs(4, 29), [](const auto& now) { return plain(now); });
}

// What a drafter drafts, by position.
struct Drafted {
  std::mutex mutex;
  std::vector<std::vector<int32_t>> blocks;  // position, anchor, drafts
};

class Recorder final : public model::Drafter {
 public:
  Recorder(std::unique_ptr<model::Drafter> inner, Drafted& drafted) : inner_(std::move(inner)), drafted_(drafted) {}
  const model::DrafterNeeds& needs() const override { return inner_->needs(); }
  int64_t weight_bytes() const override { return inner_->weight_bytes(); }
  int64_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  void commit(const model::CommitInput& input) override { inner_->commit(input); }
  void draft(const model::DraftInput& input, int32_t* ids, int64_t stride) override {
    inner_->draft(input, ids, stride);
    const std::lock_guard lock(drafted_.mutex);
    for (size_t i = 0; i < input.sequences.size(); ++i) {
      auto& block = drafted_.blocks.emplace_back(std::vector<int32_t>{input.sequences[i].position, input.anchors[i]});
      block.insert(block.end(), ids + static_cast<int64_t>(i) * stride, ids + static_cast<int64_t>(i) * stride + input.counts[i]);
    }
  }

 private:
  std::unique_ptr<model::Drafter> inner_;
  Drafted& drafted_;
};

LocalOptions recorded(LocalOptions o, Drafted& drafted) {
  const auto checkpoint = model::Checkpoint::open(golden_dir(kFolder));
  auto source = engine::choose_drafter(o.speculation, checkpoint->config(), o.numerics.activation, o.context_tokens);
  EXPECT_TRUE(source.ok());
  o.drafter = *source;
  o.drafter.load = [inner = source->load, &drafted](model::Glm5Next& target, ops::Backend& backend,
                                                    int64_t v) -> Result<std::unique_ptr<model::Drafter>> {
    BATON_ASSIGN(auto drafter, inner(target, backend, v));
    return std::unique_ptr<model::Drafter>(std::make_unique<Recorder>(std::move(drafter), drafted));
  };
  return o;
}

using Blocks = std::vector<std::vector<int32_t>>;

// What was drafted since the last call, by requests that have all ended.
Blocks taken(World& w, Drafted& drafted) {
  w.metrics();
  const std::lock_guard lock(drafted.mutex);
  return std::exchange(drafted.blocks, {});
}

// Of one request: the drafts at each place and token before it are the same. How many there are near the end of an answer depends on what
// is known of the cycle before when a block is planned, and planning ahead may run a cycle more behind the end of one.
void expect_alike(const Blocks& cold, const Blocks& warm, const std::string& what) {
  using Drafts = std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>>;  // of a place and the token before it
  const auto drafts_of = [&what](const Blocks& blocks) {
    Drafts all;
    for (const std::vector<int32_t>& block : blocks) {
      const std::vector<int32_t> drafts(block.begin() + 2, block.end());
      std::vector<int32_t>& longest = all[{block[0], block[1]}];
      const size_t both = std::min(longest.size(), drafts.size());
      EXPECT_TRUE(std::equal(drafts.begin(), drafts.begin() + static_cast<ptrdiff_t>(both), longest.begin()))
          << what << ", place " << block[0];
      if (drafts.size() > longest.size()) longest = drafts;
    }
    return all;
  };
  const Drafts a = drafts_of(cold), b = drafts_of(warm);
  const int32_t sure = std::min(a.rbegin()->first.first, b.rbegin()->first.first) - 2 * 8;  // two cycles before the end
  for (const auto& [place, drafts] : a) {
    const auto other = b.find(place);
    if (place.first >= sure) {
      if (other == b.end()) continue;
      const size_t both = std::min(drafts.size(), other->second.size());
      EXPECT_TRUE(std::equal(drafts.begin(), drafts.begin() + static_cast<ptrdiff_t>(both), other->second.begin()))
          << what << ", place " << place.first;
    } else {
      ASSERT_NE(other, b.end()) << what << ": no drafts at place " << place.first << " behind token " << place.second;
      EXPECT_EQ(drafts, other->second) << what << ", place " << place.first;
    }
  }
}

// A page is shared only where what it holds is the same, the drafter's part included: B drafts as if A had never been.
TEST(Speculation, DraftsBehindAPrefixThatEndsAtAPageEdgeAreThoseOfAColdStart) {
  for (const std::string drafter : kDrafters)
    for (const size_t same : {size_t{64}, size_t{128}, size_t{130}, size_t{192}}) {
      RequestSpec a = specs(1, 28).front();
      a.sampling = {};
      a.prompt.resize(220);
      for (size_t i = 0; i < a.prompt.size(); ++i) a.prompt[i] = static_cast<int32_t>(i * 31 % static_cast<size_t>(vocabulary()));
      a.max_tokens = 40;
      RequestSpec b = a;
      for (size_t i = same; i < b.prompt.size(); ++i)
        b.prompt[i] = static_cast<int32_t>(i * 17 % static_cast<size_t>(vocabulary()) + 1) % 200;
      ASSERT_NE(a.prompt[same], b.prompt[same]);
      RequestSpec c = b;  // goes on behind B's own prefix
      c.prompt.resize(200);
      Drafted cold, warm;
      Blocks cold_b, cold_c, warm_b, warm_c;
      {
        World w(recorded(with(small_options(2), drafter), cold), kFolder);
        b.cache_prompt = c.cache_prompt = false;
        w.ask(b);
        cold_b = taken(w, cold);
        w.ask(c);
        cold_c = taken(w, cold);
      }
      {
        World w(recorded(with(small_options(2), drafter), warm), kFolder);
        w.ask(a);
        w.ask(a);
        b.cache_prompt = c.cache_prompt = true;
        taken(w, warm);
        w.ask(b);
        warm_b = taken(w, warm);
        EXPECT_GT(w.ask(c).usage[0].cached_tokens, 0);
        warm_c = taken(w, warm);
        EXPECT_GT(w.metrics().tokens_matched_state, 0);
      }
      expect_alike(cold_b, warm_b, fmt::format("{} tokens are the same, {}", same, drafter));
      expect_alike(cold_c, warm_c, fmt::format("behind its own prefix, {} tokens are the same, {}", same, drafter));
    }
}

}  // namespace
}  // namespace baton::testing
