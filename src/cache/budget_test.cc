#include "cache/budget.h"

#include <gtest/gtest.h>

#include <random>

#include "base/test_seed.h"

namespace baton::cache {
namespace {

// Numbers of the released model on one GPU, rounded.
BudgetRequest request() {
  return {.memory_bytes = int64_t{140} << 30,
          .weight_bytes = int64_t{90} << 30,
          .workspace_bytes = int64_t{2} << 30,
          .graph_bytes = int64_t{1} << 30,
          .page_bytes = 420'000,
          .slot_bytes = 190'000'000,
          .ring_bytes = 40'000'000,
          .snapshot_bytes = 148'000'000,
          .context_tokens = 65'536,
          .running = 32,
          .host_bytes = int64_t{20} << 30};
}

int64_t used(const Budget& b) {
  int64_t sum = b.unused_bytes;
  for (const BudgetLine& l : b.device) sum += l.bytes();
  return sum;
}

TEST(Budget, SharesAllMemoryAndSaysSo) {
  const auto b = solve_budget(request());
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(b->slots, 32);
  EXPECT_GE(b->pages, 65'536 / 64);
  EXPECT_GE(b->snapshots, 1);
  EXPECT_EQ(used(*b), b->memory_bytes);
  EXPECT_GE(b->unused_bytes, 0);
  EXPECT_LT(b->unused_bytes, 420'000);
  EXPECT_GT(b->host_slots, 0);
  EXPECT_GT(b->host_pages, 0);
  EXPECT_NE(b->table().find("replay rings"), std::string::npos);
}

TEST(Budget, SaysWhatARequestTakesWithAndWithoutADrafter) {
  BudgetRequest r = request();
  r.context_tokens = 6'400;
  r.plain_slot_bytes = 145'000'000;
  r.plain_page_bytes = 400'000;
  r.drafter_bytes = int64_t{1} << 30;
  const auto b = solve_budget(r);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(used(*b), b->memory_bytes);
  EXPECT_EQ(b->requests.bytes_each, 190'000'000 + 100 * 420'000);
  EXPECT_EQ(b->requests.fit, (int64_t{47} << 30) / (190'000'000 + 100 * 420'000));
  EXPECT_EQ(b->without_drafter.bytes_each, 145'000'000 + 100 * 400'000);
  EXPECT_EQ(b->without_drafter.fit, (int64_t{48} << 30) / (145'000'000 + 100 * 400'000));
  // As many as it says: with --max-running at that and no snapshots the memory suffices, with one more it does not for all their pages.
  r.running = static_cast<int32_t>(b->requests.fit);
  r.snapshots = 0;
  r.pool_tokens = r.running * r.context_tokens;
  EXPECT_TRUE(solve_budget(r).ok());
  ++r.running;
  r.pool_tokens = r.running * r.context_tokens;
  EXPECT_FALSE(solve_budget(r).ok());
}

// What is advised is right: with it the same request is met, and with a little less it is not.
int64_t advised(const std::string& message, const std::string& before) {
  const size_t at = message.find(before);
  EXPECT_NE(at, std::string::npos) << message;
  return at == std::string::npos ? 0 : std::atoll(message.c_str() + at + before.size());
}

TEST(Budget, RefusesTooManyRequestsAndNamesTheNumber) {
  BudgetRequest r = request();
  r.running = 1000;
  const auto refused = solve_budget(r);
  ASSERT_FALSE(refused.ok());
  const int64_t running = advised(refused.error().message, "lower --max-running to ");
  r.running = static_cast<int32_t>(running);
  EXPECT_TRUE(solve_budget(r).ok());
  r.running = static_cast<int32_t>(running + 1);
  EXPECT_FALSE(solve_budget(r).ok());
  r.running = 1000;
  r.memory_bytes = advised(refused.error().message, "raise --memory to ");
  EXPECT_TRUE(solve_budget(r).ok());
  --r.memory_bytes;
  EXPECT_FALSE(solve_budget(r).ok());
}

TEST(Budget, RefusesAContextThatDoesNotFitAndNamesTheNumber) {
  BudgetRequest r = request();
  r.running = 1;
  r.context_tokens = int64_t{1} << 24;
  const auto refused = solve_budget(r);
  ASSERT_FALSE(refused.ok());
  r.context_tokens = advised(refused.error().message, "lower --context to ");
  EXPECT_TRUE(solve_budget(r).ok());
  r.context_tokens += 1;
  EXPECT_FALSE(solve_budget(r).ok());
}

TEST(Budget, RefusesWhenWeightsAloneAreTooMuch) {
  BudgetRequest r = request();
  r.memory_bytes = int64_t{60} << 30;
  const auto refused = solve_budget(r);
  ASSERT_FALSE(refused.ok());
  r.memory_bytes = advised(refused.error().message, "raise --memory to ");
  EXPECT_TRUE(solve_budget(r).ok()) << "one advice is enough";
  --r.memory_bytes;
  EXPECT_FALSE(solve_budget(r).ok());
}

TEST(Budget, AnExplicitPoolIsMetOrRefused) {
  BudgetRequest r = request();
  r.pool_tokens = 100'000;
  const auto b = solve_budget(r);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(b->pages, (100'000 + 63) / 64);
  r.pool_tokens = 60'000;  // less than one context
  EXPECT_FALSE(solve_budget(r).ok());
  r.pool_tokens = int64_t{1} << 40;
  const auto refused = solve_budget(r);
  ASSERT_FALSE(refused.ok());
  r.pool_tokens = advised(refused.error().message, "lower it to ");
  EXPECT_TRUE(solve_budget(r).ok());
}

TEST(Budget, RandomRequestsNeverOverspend) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    const auto some = [&random](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)) + 1; };
    BudgetRequest r{.memory_bytes = some(1 << 20),
                    .weight_bytes = some(1 << 18),
                    .workspace_bytes = some(1 << 16),
                    .page_bytes = some(3000),
                    .slot_bytes = some(9000) + 1000,
                    .ring_bytes = some(1000),
                    .snapshot_bytes = random() % 5 == 0 ? 0 : some(8000),
                    .context_tokens = some(5000),
                    .running = static_cast<int32_t>(some(60)),
                    .host_bytes = random() % 2 == 0 ? 0 : some(1 << 18)};
    if (random() % 4 == 0) r.pool_tokens = some(40'000);
    if (random() % 4 == 0) r.snapshots = static_cast<int32_t>(some(20)) - 1;
    const auto b = solve_budget(r);
    if (!b.ok()) continue;
    ASSERT_EQ(used(*b), r.memory_bytes);
    ASSERT_GE(b->unused_bytes, 0);
    ASSERT_GE(int64_t{b->pages} * 64, r.context_tokens);
    ASSERT_EQ(b->slots, r.running);
    int64_t host = 0;
    for (const BudgetLine& l : b->host) host += l.bytes();
    ASSERT_LE(host, r.host_bytes);
  }
}

TEST(Budget, PoolsBeyondAnyMachineAreRefusedWithoutOverflow) {
  BudgetRequest r = request();
  for (const int64_t tokens : {int64_t{1} << 40, int64_t{1} << 50, int64_t{1} << 55}) {
    r.pool_tokens = tokens;
    const auto refused = solve_budget(r);
    ASSERT_FALSE(refused.ok()) << tokens;
    EXPECT_NE(refused.error().message.find("--pool-tokens"), std::string::npos);
  }
}

}  // namespace
}  // namespace baton::cache
