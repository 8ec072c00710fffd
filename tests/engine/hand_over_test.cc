// The promise of the hand-over on the CPU with float state: prefill and decode apart give every request, to the bit of its
// log-probabilities, what one engine gives it; only missing pages travel, the state always; decode computes no row of a prompt.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/random.h"
#include "base/test_seed.h"
#include "engine/split_engine.h"
#include "engine/world.h"
#include "transfer/nixl.h"
#include "transfer/nixl_library.h"

namespace baton::testing {
namespace {

using engine::SplitEngine;
using engine::SplitOptions;

constexpr const char* kFolder = "mtp";
constexpr const char* kDrafters[] = {"none", "NEXTN", "DFLASH"};

LocalOptions options(int32_t running, const std::string& drafter = "none") {
  LocalOptions o = small_options(running);
  o.backend.threads = 1;
  o.prefill_tokens = 192;
  o.speculation.algorithm = drafter;
  if (drafter == "DFLASH") o.speculation.draft_model = BATON_TEST_DATA "/drafters/dflash2";
  return o;
}

int64_t vocabulary() {
  static const int64_t v = model::Checkpoint::open(golden_dir(kFolder))->config().vocab_size;
  return v;
}

std::vector<RequestSpec> specs(size_t count, uint32_t seed) {
  std::vector<RequestSpec> all = make_specs(count, seed, vocabulary());
  for (RequestSpec& s : all) s.max_tokens = std::min<int64_t>(s.max_tokens, 30);
  return all;
}

RequestSpec spec(int64_t prompt, uint32_t seed) {
  RequestSpec s = specs(1, seed).front();
  s.prompt.clear();
  for (int64_t i = 0; i < prompt; ++i)
    s.prompt.push_back(static_cast<int32_t>(philox(seed, {static_cast<uint32_t>(i), 0, 0, 0})[0] % static_cast<uint32_t>(vocabulary())));
  s.max_tokens = 8;
  return s;
}

// By itself, in one engine without drafts.
std::vector<Answer> unified(const std::vector<RequestSpec>& all, bool constrain = false) {
  World w(options(1), kFolder);
  w.constrain = constrain;
  std::vector<Answer> answers;
  for (RequestSpec s : all) {
    s.cache_prompt = false;
    answers.push_back(w.ask(s));
  }
  return answers;
}

std::vector<Answer> ask_all_of(engine::Engine& e, const std::vector<RequestSpec>& all, bool constrain = false) {
  std::vector<std::unique_ptr<GatheringSink>> sinks;
  for (const RequestSpec& s : all) {
    sinks.push_back(std::make_unique<GatheringSink>(s.choices, true));
    auto form = constrain && s.sampling.seed % 2 == 0 ? std::make_unique<ThirdForm>(vocabulary()) : nullptr;
    EXPECT_TRUE(e.submit(s, *sinks.back(), std::move(form)).ok());
  }
  std::vector<Answer> answers;
  for (const auto& sink : sinks) {
    sink->wait();
    EXPECT_FALSE(sink->refusal()) << sink->refusal()->message;
    EXPECT_EQ(sink->choices()[0].ends, 1);
    answers.push_back(answer_of(*sink));
  }
  return answers;
}

struct Apart {
  std::unique_ptr<SplitEngine> split;
  bool constrain = false;

  explicit Apart(std::unique_ptr<SplitEngine> opened) : split(std::move(opened)) {}
  // Nothing is said twice unless `s` says when: where somebody is not woken, a test does not end.
  explicit Apart(const LocalOptions& o, SplitOptions s = {}) {
    if (!s.waits.has_value()) {
      s.waits.emplace();
      s.waits->resend = s.waits->patience = s.waits->order_limit = s.waits->most_wait = pd::Time{3600} * 1'000'000'000;
    }
    auto opened = SplitEngine::open(*model::Checkpoint::open(golden_dir(kFolder)), o, s);
    if (!opened.ok()) throw std::runtime_error(opened.error().message);
    split = std::move(*opened);
  }
  std::vector<Answer> ask_all(const std::vector<RequestSpec>& all, int32_t decode = 0) {
    std::vector<Answer> answers = ask_all_of(split->decode(decode).engine(), all, constrain);
    split->wait_idle();
    return answers;
  }
  engine::EngineMetrics decode(int32_t i = 0) { return split->decode(i).engine().metrics(); }
  engine::EngineMetrics prefill(int32_t i = 0) { return split->prefill(i).engine().metrics(); }
  // What has been sent, in bytes.
  transfer::Metrics sent() { return prefill().role.transfer; }
};

TEST(HandOver, GivesTheBitsOfOneEngineColdAndWarmWithEveryDrafter) {
  const std::vector<RequestSpec> all = specs(12, 31);
  const std::vector<Answer> wanted = unified(all, true);
  for (const std::string drafter : kDrafters) {
    Apart a(options(4, drafter));
    a.constrain = true;
    expect_equal(a.ask_all(all), wanted, (drafter + ", cold").c_str());
    if (HasFatalFailure()) return;
    const int64_t cold = a.decode().role.decode.pages_ordered;
    expect_equal(a.ask_all(all), wanted, (drafter + ", warm").c_str());
    if (HasFatalFailure()) return;
    const engine::EngineMetrics d = a.decode();
    EXPECT_LT(d.role.decode.pages_ordered - cold, cold);
    EXPECT_EQ(d.role.decode.landed, 24);
    EXPECT_EQ(d.scheduler.prefill_tokens, 0) << "rows of prompts that decode computed";
    EXPECT_EQ(a.prefill().scheduler.decode_tokens, 0);
    EXPECT_EQ(d.scheduler.pages_held + a.prefill().scheduler.pages_held, 0);
    EXPECT_EQ(d.scheduler.slots_free, d.scheduler.slots);
    EXPECT_EQ(d.scheduler.speculation.drafted > 0, drafter != "none");
  }
}

// The same with writes by NIXL, as between processes.
TEST(HandOverNixl, GivesTheBitsOfOneEngineColdAndWarmWithEveryDrafter) {
  if (const auto library = transfer::load_nixl(); !library.ok()) {
    std::printf("%s\n", library.error().message.c_str());  // ctest takes it for a skipped test
    GTEST_SKIP();
  }
  const std::vector<RequestSpec> all = specs(12, 31);
  const std::vector<Answer> wanted = unified(all, true);
  for (const std::string drafter : kDrafters) {
    SplitOptions by_nixl;
    by_nixl.prefills = 2;
    by_nixl.transport = [] { return std::make_unique<transfer::Nixl>(); };
    Apart a(options(4, drafter), by_nixl);
    a.constrain = true;
    for (const char* what : {"cold", "warm"}) {
      expect_equal(a.ask_all(all), wanted, fmt::format("{}, {}", drafter, what).c_str());
      if (HasFatalFailure()) return;
    }
    const engine::EngineMetrics d = a.decode();
    EXPECT_EQ(d.role.decode.landed, 24);
    EXPECT_EQ(d.scheduler.prefill_tokens, 0);
    int64_t parts = 0;
    for (const int32_t p : {0, 1}) {
      const transfer::Metrics m = a.prefill(p).role.transfer;
      parts += m.parts;
      EXPECT_EQ(m.failed + m.garbled + m.left_behind + m.waiting, 0);
      EXPECT_EQ(m.peers, 1);
    }
    EXPECT_EQ(d.role.transfer.arrived, parts);
    EXPECT_GE(parts, 24);
    EXPECT_EQ(d.scheduler.pages_held + a.prefill(0).scheduler.pages_held + a.prefill(1).scheduler.pages_held, 0);
  }
}

// Drafts change no token, so a drafter that was handed over wrong would only be slower: as many are right as in one engine.
TEST(HandOver, DraftersGoOnWhereTheyWereInOneEngine) {
  const std::vector<RequestSpec> all = specs(12, 32);
  for (const std::string drafter : {"NEXTN", "DFLASH"}) {
    LocalOptions o = options(4, drafter);
    o.snapshots = 0;  // drafts do not wait for page edges
    World w(o, kFolder);
    Apart a(o);
    const std::vector<Answer> wanted = w.ask_all(all);
    for (const char* what : {"cold", "warm"}) {
      expect_equal(a.ask_all(all), wanted, what);
      const speculate::Metrics one = w.metrics().speculation, apart = a.decode().scheduler.speculation;
      const int times = std::string(what) == "cold" ? 1 : 2;
      EXPECT_GT(one.accepted, 0);
      EXPECT_EQ(apart.accepted, times * one.accepted) << drafter << ", " << what;
      EXPECT_EQ(apart.drafted, times * one.drafted) << drafter << ", " << what;
    }
  }
}

// P has less, P has more, both have everything: pages that are ordered, and whether the state comes.
TEST(HandOver, OnlyWhatIsMissingTravelsAndTheStateAlways) {
  const std::vector<RequestSpec> all = {spec(450, 5)};  // seven pages and an open one
  const std::vector<Answer> wanted = unified(all);
  for (const std::string drafter : kDrafters) {
    Apart a(options(2, drafter));
    int64_t ordered = 0, slot_bytes = 0;
    const auto moved = [&](const char* what) {
      expect_equal(a.ask_all(all), wanted, (drafter + ", " + what).c_str());
      const int64_t pages = a.decode().role.decode.pages_ordered - ordered;
      ordered += pages;
      EXPECT_GT(a.sent().slot_bytes, slot_bytes) << what << ": the state always travels";
      slot_bytes = a.sent().slot_bytes;
      return pages;
    };
    EXPECT_EQ(moved("both cold"), 8);
    EXPECT_EQ(moved("both have all full pages"), 1);
    a.split->prefill().engine().flush_cache();
    const int64_t computed = a.prefill().scheduler.prefill_tokens;
    EXPECT_EQ(moved("prefill has less"), 1);
    EXPECT_EQ(a.prefill().scheduler.prefill_tokens - computed, 450) << "it computes for itself what it does not send";
    a.split->decode().engine().flush_cache();
    EXPECT_EQ(moved("prefill has more"), 8);
    EXPECT_EQ(a.decode().scheduler.prefill_tokens, 0);
  }
}

// A prompt that ends at a page edge: nothing is missing, and state, window and hidden row come. With MTP the last page depends on the token
// behind, and is not shared.
TEST(HandOver, AFullHitStillMovesTheState) {
  const std::vector<RequestSpec> all = {spec(4 * ops::kPageTokens, 9)};
  const std::vector<Answer> wanted = unified(all);
  for (const std::string drafter : kDrafters) {
    Apart a(options(2, drafter));
    expect_equal(a.ask_all(all), wanted, (drafter + ", cold").c_str());
    const transfer::Metrics cold = a.sent();
    expect_equal(a.ask_all(all), wanted, (drafter + ", full hit").c_str());
    EXPECT_EQ(a.sent().page_bytes - cold.page_bytes, drafter == "NEXTN" ? cold.page_bytes / 4 : 0);
    EXPECT_EQ(a.sent().slot_bytes, 2 * cold.slot_bytes);
  }
}

TEST(HandOver, AnotherRequestOfAlmostTheSamePromptMovesAlmostNothing) {
  LocalOptions o = options(2);
  o.context_tokens = 6600;
  o.pool_tokens = 2 * 6656;
  o.prefill_tokens = 512;
  const RequestSpec first = spec(6400, 6);
  RequestSpec second = first;
  second.prompt.resize(6336);  // 99 %
  for (int32_t i = 0; i < 64; ++i) second.prompt.push_back(i);
  Apart a(o);
  a.ask_all({first});
  const transfer::Metrics cold = a.sent();
  a.ask_all({second});
  const int64_t again = a.sent().page_bytes - cold.page_bytes;
  std::printf("pages: %lld bytes, then %lld; slot: %lld each\n", static_cast<long long>(cold.page_bytes), static_cast<long long>(again),
              static_cast<long long>(cold.slot_bytes));
  EXPECT_GT(again, 0);
  EXPECT_LT(static_cast<double>(again), 0.03 * static_cast<double>(cold.page_bytes));
  EXPECT_EQ(a.sent().slot_bytes, 2 * cold.slot_bytes);
}

// N requests of a common prefix on R decode instances hold the prefix R times, what is their own once each, and a slot each.
TEST(HandOver, DecodeInstancesHoldACommonPrefixOnceEach) {
  constexpr int32_t kRanks = 2, kEach = 3;
  constexpr int64_t kPrefix = 4, kSuffix = 1;  // pages
  Apart a(options(kEach), {.decodes = kRanks});
  for (int32_t r = 0; r < kRanks; ++r) {
    std::vector<RequestSpec> all;
    for (int32_t i = 0; i < kEach; ++i) {
      all.push_back(spec(kPrefix * ops::kPageTokens, 40));
      const RequestSpec own = spec(kSuffix * ops::kPageTokens, static_cast<uint32_t>(50 + r * kEach + i));
      all.back().prompt.insert(all.back().prompt.end(), own.prompt.begin(), own.prompt.end());
      all.back().max_tokens = 1;  // no page of its own
    }
    expect_equal(a.ask_all(all, r), unified(all), "a rank");
  }
  int64_t pages = 0, slots = 0;
  for (int32_t r = 0; r < kRanks; ++r) {
    pages += a.decode(r).scheduler.pages_cached;
    slots += a.decode(r).role.decode.landed;
    EXPECT_EQ(a.decode(r).scheduler.pages_held, 0);
  }
  EXPECT_EQ(pages, kRanks * kPrefix + kRanks * kEach * kSuffix);
  EXPECT_EQ(slots, kRanks * kEach);
}

// Lost, doubled and repeated messages, and pages for a few: everything takes longer, and nothing changes.
TEST(HandOver, ABadNetworkAndLittleMemoryChangeNothing) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::vector<RequestSpec> all = specs(10, 33);
  for (RequestSpec& s : all) s.max_tokens = 200;  // long beside what a lost message costs, so that several decode at once
  const std::vector<Answer> wanted = unified(all);
  for (const std::string drafter : kDrafters) {
    std::atomic<uint32_t> count{0};
    SplitOptions s;
    s.waits.emplace();
    s.waits->resend = 20'000'000;
    s.waits->patience = s.waits->order_limit = s.waits->most_wait = pd::Time{3600} * 1'000'000'000;
    s.copies = [&count, seed](std::span<const std::byte>) {
      const uint32_t r = philox(seed, {count++, 0, 0, 0})[0] % 8;
      return r == 0 ? 0 : r == 1 ? 2 : 1;
    };
    LocalOptions o = options(4, drafter);
    o.pool_tokens = 10 * 64;
    o.growth_tokens = 16;
    o.host_bytes = int64_t{64} << 20;
    Apart a(o, s);
    expect_equal(a.ask_all(all), wanted, drafter.c_str());
    if (HasFatalFailure()) return;
    const engine::EngineMetrics d = a.decode();
    EXPECT_GT(d.scheduler.retractions_to_host, 0);
    EXPECT_EQ(d.scheduler.retractions_recomputed, 0);
    EXPECT_LE(d.scheduler.prefill_tokens, d.scheduler.retractions_to_host) << "who comes back runs its newest token, and no other";
    EXPECT_EQ(d.role.decode.open + d.role.decode.quarantined + d.role.decode.waiting + d.scheduler.pages_held, 0);
  }
}

// Cancelled wherever they are, and engines that are closed with requests inside: each request has one end, and nothing is left.
TEST(HandOver, WhoeverGoesLeavesNothing) {
  const std::vector<RequestSpec> all = specs(12, 34);
  std::vector<std::unique_ptr<GatheringSink>> sinks;
  {
    Apart a(options(3, "NEXTN"));
    std::vector<sched::RequestId> ids;
    for (const RequestSpec& s : all) {
      sinks.push_back(std::make_unique<GatheringSink>(1, true));
      ids.push_back(a.split->decode().engine().submit(s, *sinks.back()).value());
    }
    sinks[0]->wait_tokens(0, 1);
    for (const sched::RequestId id : ids) a.split->decode().engine().cancel(id);
    for (const auto& sink : sinks) sink->wait();
    a.split->wait_idle();
    EXPECT_EQ(a.decode().scheduler.pages_held + a.prefill().scheduler.pages_held, 0);
    EXPECT_EQ(a.decode().role.decode.quarantined, 0);
    EXPECT_GT(a.decode().role.decode.cancelled, 0);
    for (const RequestSpec& s : all) {
      sinks.push_back(std::make_unique<GatheringSink>(1, true));
      ASSERT_TRUE(a.split->decode().engine().submit(s, *sinks.back()).ok());
    }
    sinks[all.size()]->wait_tokens(0, 1);
  }
  for (const auto& sink : sinks) EXPECT_EQ(sink->choices()[0].ends, 1);
}

// Prompts of 100 tokens up, most of them short, every second with a beginning that another has; cold and warm. For a soak:
// BATON_SOAK_PROMPTS, how many, then up to 8,000 tokens; BATON_SOAK_MODEL, a checkpoint; BATON_SOAK_DRAFTER, its DFlash2 drafter;
// BATON_SOAK_IDS, a file of token ids that prompts are cut from; BATON_SOAK_ALGORITHM, one of the drafters instead of all.
struct Soak {
  std::vector<std::string> drafters{std::begin(kDrafters), std::end(kDrafters)};
  std::string model = golden_dir(kFolder), drafter = BATON_TEST_DATA "/drafters/dflash2";
  size_t prompts = 6;
  double longest = 400;
  std::vector<int32_t> ids;

  Soak() {
    const auto given = [](const char* name) { return std::getenv(name); };
    if (const char* n = given("BATON_SOAK_PROMPTS")) prompts = std::strtoull(n, nullptr, 10), longest = 8000;
    if (const char* m = given("BATON_SOAK_MODEL")) model = m;
    if (const char* d = given("BATON_SOAK_DRAFTER")) drafter = d;
    if (const char* a = given("BATON_SOAK_ALGORITHM")) drafters = {a};
    if (const char* f = given("BATON_SOAK_IDS")) {
      std::ifstream file(f);
      for (int32_t id = 0; file >> id;) ids.push_back(id);
    }
  }
  std::vector<RequestSpec> specs(int64_t vocabulary_size) const {
    std::mt19937 random(35);
    std::vector<RequestSpec> all(prompts);
    for (size_t i = 0; i < prompts; ++i) {
      RequestSpec& s = all[i];
      const double place = i == 0 ? 1 : static_cast<double>(random() % 1000) / 999;
      const auto length = static_cast<size_t>(100 * std::pow(longest / 100, place * place));
      if (i % 2 == 1) {
        const std::vector<int32_t>& other = all[random() % i].prompt;
        s.prompt.assign(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(random() % std::min(other.size(), length)));
      }
      for (size_t at = ids.empty() ? 0 : random() % ids.size(); s.prompt.size() < length; ++at)
        s.prompt.push_back(ids.empty() ? static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary_size)) : ids[at % ids.size()]);
      s.max_tokens = 32;
      s.sampling.logprobs = kLogprobs;
      s.sampling.seed = i;
      if (i % 4 == 1) s.sampling.temperature = 0.8F;
    }
    return all;
  }
  LocalOptions options(const std::string& with) const {
    LocalOptions o = testing::options(4, with);
    o.backend.threads = 2;
    o.context_tokens = static_cast<int64_t>(longest) + 64;
    o.pool_tokens = static_cast<int64_t>(prompts) * o.context_tokens / 2 + 4 * o.context_tokens;
    o.snapshots = static_cast<int32_t>(2 * prompts) + 16;
    o.prefill_tokens = 512;
    o.memory_bytes = int64_t{6} << 30;
    if (with == "DFLASH") o.speculation.draft_model = drafter;
    return o;
  }
};

TEST(HandOver, ManyPromptsOfAllLengthsGiveTheBitsOfOneEngine) {
  const Soak soak;
  const model::Checkpoint checkpoint = *model::Checkpoint::open(soak.model);
  const std::vector<RequestSpec> all = soak.specs(checkpoint.config().vocab_size);
  std::vector<Answer> wanted;
  {
    auto one = LocalEngine::open(checkpoint, soak.options("none"));
    ASSERT_TRUE(one.ok()) << one.error().message;
    wanted = ask_all_of((*one)->engine(), all);
  }
  int64_t tokens = 0;
  for (const RequestSpec& s : all) tokens += std::ssize(s.prompt);
  for (const std::string& drafter : soak.drafters) {
    auto opened = SplitEngine::open(checkpoint, soak.options(drafter), {});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Apart a(std::move(*opened));
    for (const char* what : {"cold", "warm"}) {
      const transfer::Metrics before = a.sent();
      const int64_t rows = a.prefill().scheduler.prefill_tokens;
      expect_equal(a.ask_all(all), wanted, (drafter + ", " + what).c_str());
      if (HasFatalFailure()) return;
      const speculate::Metrics s = a.decode().scheduler.speculation;
      std::printf(
          "%s, %s: %zu prompts of %lld tokens, %lld rows computed by prefill, %lld by decode; pages %.3f MB, state %.3f MB; %lld of %lld "
          "drafts right so far\n",
          drafter.c_str(), what, all.size(), static_cast<long long>(tokens),
          static_cast<long long>(a.prefill().scheduler.prefill_tokens - rows), static_cast<long long>(a.decode().scheduler.prefill_tokens),
          static_cast<double>(a.sent().page_bytes - before.page_bytes) / 1e6,
          static_cast<double>(a.sent().slot_bytes - before.slot_bytes) / 1e6, static_cast<long long>(s.accepted),
          static_cast<long long>(s.drafted));
      std::fflush(stdout);
    }
    EXPECT_EQ(a.decode().scheduler.prefill_tokens, 0);
    EXPECT_EQ(a.decode().role.decode.mismatches + a.decode().role.decode.contradictions, 0);
  }
}

TEST(HandOver, WhatIsNotThereYetIsRefused) {
  Apart a(options(2));
  GatheringSink sink(2);
  RequestSpec s = spec(5, 1);
  const auto refusal = [&](engine::LocalEngine& e) { return e.engine().submit(s, sink).error().message; };
  EXPECT_NE(refusal(a.split->prefill()).find("computes prompts for others"), std::string::npos);
  s.choices = 2;
  EXPECT_NE(refusal(a.split->decode()).find("(n) above 1"), std::string::npos);
  s.choices = 1;
  s.sampling.prompt_logprobs = 0;
  EXPECT_NE(refusal(a.split->decode()).find("prompt_logprobs"), std::string::npos);
}

}  // namespace
}  // namespace baton::testing
