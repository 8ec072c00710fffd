#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

#include "base/test_seed.h"
#include "cache/snapshot_cache.h"

namespace baton::cache {
namespace {

// A page of units that differs from another letter's in its last unit alone, so that a comparison that stops early is found out; every
// third letter from its neighbour only in the upper half of the unit.
std::array<Unit, kPageUnits> page_of(int letter) {
  std::array<Unit, kPageUnits> units{};
  units.back() = letter % 3 == 2 ? (static_cast<Unit>(letter) << 40U) + static_cast<Unit>(letter) : static_cast<Unit>(letter) + 1;
  return units;
}

std::vector<Unit> units_of(const std::vector<int>& letters) {
  std::vector<Unit> units;
  for (const int letter : letters) {
    const auto page = page_of(letter);
    units.insert(units.end(), page.begin(), page.end());
  }
  return units;
}

struct Fixture {
  IdPool pool;
  PrefixTree tree;
  explicit Fixture(int32_t pages) : pool(pages), tree(pool) {}

  int32_t take() {
    int32_t page = -1;
    EXPECT_TRUE(pool.take({&page, 1}));
    return page;
  }
  // Inserts a run and returns its nodes; duplicates are given back.
  std::vector<Node> insert(uint64_t salt, const std::vector<int>& letters) {
    std::vector<Node> nodes;
    Node at = kRoot;
    for (const int letter : letters) {
      const int32_t page = take();
      const Node node = tree.extend(at, salt, page_of(letter), page);
      if (node != page) pool.release(page);
      nodes.push_back(at = node);
    }
    return nodes;
  }
  std::vector<Node> match(uint64_t salt, const std::vector<Unit>& units) {
    std::vector<Node> out(units.size() / kPageUnits + 1);
    out.resize(static_cast<size_t>(tree.match(salt, units, out)));
    return out;
  }
  int32_t evict(int32_t count) {
    return tree.evict(count, [](Node) {});
  }
};

TEST(PrefixTree, MatchesWholePagesOfTheSameSaltOnly) {
  Fixture f(8);
  const std::vector<Node> nodes = f.insert(1, {3, 4, 5});
  EXPECT_EQ(f.match(1, units_of({3, 4, 5})), nodes);
  EXPECT_EQ(f.match(1, units_of({3, 4, 6})).size(), 2U);
  EXPECT_EQ(f.match(1, units_of({4, 5})).size(), 0U);
  EXPECT_EQ(f.match(2, units_of({3, 4, 5})).size(), 0U) << "another tenant's run";
  std::vector<Unit> part = units_of({3, 4, 5});
  part.pop_back();
  EXPECT_EQ(f.match(1, part).size(), 2U) << "a part of a page is no page";
  EXPECT_EQ(f.match(1, {}).size(), 0U);
}

TEST(PrefixTree, SecondInsertOfTheSameRunReturnsTheFirst) {
  Fixture f(8);
  const std::vector<Node> first = f.insert(0, {1, 2});
  EXPECT_EQ(f.insert(0, {1, 2}), first);
  EXPECT_EQ(f.pool.cached_count(), 2);
  EXPECT_EQ(f.pool.held_count(), 0);
}

TEST(PrefixTree, EvictsLeastRecentlyUsedLeavesAndNeverALeasedPath) {
  Fixture f(8);
  const std::vector<Node> a = f.insert(0, {1, 2});
  const std::vector<Node> b = f.insert(0, {1, 3});
  const std::vector<Node> c = f.insert(0, {9});
  f.match(0, units_of({1, 2}));
  EXPECT_EQ(f.evict(1), 1);
  EXPECT_EQ(f.match(0, units_of({1, 3})).size(), 1U) << "b's leaf was the oldest";
  f.tree.lock(a[1]);
  EXPECT_EQ(f.evict(8), 1) << "c alone: a's leaf is leased, and so its parent stays";
  EXPECT_EQ(f.match(0, units_of({1, 2})).size(), 2U);
  f.tree.unlock(a[1]);
  EXPECT_EQ(f.evict(8), 2);
  EXPECT_EQ(f.pool.free_count(), 8);
  EXPECT_EQ(f.tree.size(), 0);
}

TEST(PrefixTree, AParentUsedByItselfOutlivesOlderLeaves) {
  Fixture f(8);
  f.insert(0, {1, 2});
  f.insert(0, {5});
  f.match(0, units_of({1}));  // the parent, after its child
  EXPECT_EQ(f.evict(2), 2);
  EXPECT_EQ(f.match(0, units_of({1})).size(), 1U);
  EXPECT_EQ(f.match(0, units_of({5})).size(), 0U);
}

TEST(PrefixTreeDeathTest, WrongOwnersStopTheProcess) {
  Fixture f(2);
  EXPECT_DEATH(f.tree.extend(kRoot, 0, page_of(1), 0), "expected");
  const Node node = f.insert(0, {1})[0];
  EXPECT_DEATH(f.tree.unlock(node), "no lease");
  EXPECT_DEATH(f.pool.release(node), "expected");
}

// Random operations against a map from runs to pages.
class Model {
 public:
  explicit Model(uint32_t seed) : f_(kPages), snapshots_(kSnapshots, kPages), random_(seed) {}

  void step() {
    switch (random_() % 6) {
      case 0: return grow();
      case 1: return match();
      case 2: return lock();
      case 3: return unlock();
      case 4: return evict();
      case 5: return snapshot();
    }
  }
  void check() const {
    f_.tree.check_invariants();
    snapshots_.check_invariants();
    ASSERT_EQ(f_.pool.free_count() + f_.pool.held_count() + f_.pool.cached_count(), kPages);
    ASSERT_EQ(static_cast<size_t>(f_.tree.size()), runs_.size());
  }
  void finish() {
    while (!leases_.empty()) unlock();
    evict_all();
    check();
    ASSERT_EQ(f_.pool.free_count(), kPages);
    ASSERT_EQ(snapshots_.pool().free_count(), kSnapshots);
  }

 private:
  using Run = std::pair<uint64_t, std::vector<int>>;
  static constexpr int32_t kPages = 40;
  static constexpr int32_t kSnapshots = 5;

  Run random_run() {
    Run run{random_() % 2, {}};
    for (size_t n = 1 + random_() % 6; n > 0; --n) run.second.push_back(static_cast<int>(random_() % 3));
    return run;
  }
  // Cached pages at the start of a run.
  size_t expected(const Run& run) const {
    size_t n = 0;
    while (n < run.second.size() &&
           runs_.contains({run.first, {run.second.begin(), run.second.begin() + static_cast<std::ptrdiff_t>(n) + 1}}))
      ++n;
    return n;
  }
  void grow() {
    const Run run = random_run();
    Node at = kRoot;
    std::vector<int> prefix;
    for (const int letter : run.second) {
      prefix.push_back(letter);
      int32_t page = -1;
      if (!f_.pool.take({&page, 1})) {
        // What is being grown must not be evicted from under it.
        f_.tree.lock(at);
        leases_.push_back(at);
        evict_some(2);
        leases_.pop_back();
        f_.tree.unlock(at);
        if (!f_.pool.take({&page, 1})) return;
      }
      const Node node = f_.tree.extend(at, run.first, page_of(letter), page);
      const auto known = runs_.find({run.first, prefix});
      ASSERT_EQ(node == page, known == runs_.end());
      if (node != page) {
        ASSERT_EQ(node, known->second);
        f_.pool.release(page);
      }
      runs_[{run.first, prefix}] = at = node;
    }
  }
  void match() {
    const Run run = random_run();
    const std::vector<Node> nodes = f_.match(run.first, units_of(run.second));
    ASSERT_EQ(nodes.size(), expected(run));
    std::vector<int> prefix;
    int deepest = -1;
    for (size_t i = 0; i < nodes.size(); ++i) {
      prefix.push_back(run.second[i]);
      ASSERT_EQ(nodes[i], runs_.at({run.first, prefix}));
      if (snapshots_.of(nodes[i]) != kNoSnapshot) deepest = static_cast<int>(i);
    }
    ASSERT_EQ(snapshots_.deepest(nodes), deepest);
  }
  void lock() {
    if (runs_.empty()) return;
    auto it = runs_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_() % runs_.size()));
    f_.tree.lock(it->second);
    leases_.push_back(it->second);
  }
  void unlock() {
    if (leases_.empty()) return;
    std::swap(leases_[random_() % leases_.size()], leases_.back());
    f_.tree.unlock(leases_.back());
    leases_.pop_back();
  }
  void evict() { evict_some(static_cast<int32_t>(1 + random_() % 4)); }
  void evict_all() { evict_some(kPages); }
  void evict_some(int32_t count) {
    std::vector<Node> gone;
    const int32_t freed = f_.tree.evict(count, [&](Node node) {
      gone.push_back(node);
      snapshots_.drop(node);
    });
    ASSERT_EQ(static_cast<size_t>(freed), gone.size());
    for (const Node node : gone) {
      ASSERT_EQ(std::count(leases_.begin(), leases_.end(), node), 0) << "a leased page was evicted";
      const auto it = std::find_if(runs_.begin(), runs_.end(), [&](const auto& run) { return run.second == node; });
      ASSERT_NE(it, runs_.end());
      // Nothing that is still cached hangs on it.
      const auto next = std::next(it);
      const std::vector<int>& run = it->first.second;
      ASSERT_FALSE(next != runs_.end() && next->first.first == it->first.first && next->first.second.size() > run.size() &&
                   std::equal(run.begin(), run.end(), next->first.second.begin()));
      runs_.erase(it);
    }
    // Short of the wish only when every leaf left is leased.
    if (freed < count)
      for (const auto& [run, node] : runs_) {
        const bool leaf = std::none_of(runs_.begin(), runs_.end(), [&](const auto& other) { return f_.tree.parent(other.second) == node; });
        ASSERT_TRUE(!leaf || std::count(leases_.begin(), leases_.end(), node) > 0);
      }
  }
  void snapshot() {
    if (runs_.empty()) return;
    const int32_t s = snapshots_.take();
    if (s == kNoSnapshot) return;
    auto it = runs_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_() % runs_.size()));
    if (random_() % 8 == 0) return snapshots_.release(s);
    snapshots_.attach(it->second, s);
    ASSERT_NE(snapshots_.of(it->second), kNoSnapshot);
  }

  Fixture f_;
  SnapshotCache snapshots_;
  std::mt19937 random_;
  std::map<Run, Node> runs_;
  std::vector<Node> leases_;
};

TEST(PrefixTreeProperty, RandomOperationsAgreeWithANaiveModel) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  Model model(seed);
  constexpr int kOperations = 1000000;
  for (int i = 0; i < kOperations; ++i) {
    model.step();
    if (i % 1000 == 0) model.check();
    if (::testing::Test::HasFatalFailure()) FAIL() << "operation " << i << ", seed " << seed;
  }
  model.finish();
}

TEST(SnapshotCache, LeasedSnapshotOutlivesItsNode) {
  Fixture f(4);
  SnapshotCache snapshots(1, 4);
  const Node node = f.insert(0, {1})[0];
  const int32_t s = snapshots.take();
  snapshots.attach(node, s);
  snapshots.lock(s);
  EXPECT_EQ(snapshots.take(), kNoSnapshot) << "the only one is being read";
  f.tree.evict(1, [&](Node n) { snapshots.drop(n); });
  EXPECT_EQ(snapshots.of(node), kNoSnapshot);
  EXPECT_EQ(snapshots.pool().free_count(), 0);
  snapshots.unlock(s);
  EXPECT_EQ(snapshots.pool().free_count(), 1);
}

TEST(SnapshotCache, TakingEvictsTheLeastRecentlyUsed) {
  Fixture f(4);
  SnapshotCache snapshots(2, 4);
  const std::vector<Node> nodes = f.insert(0, {1, 2, 3});
  for (const Node node : {nodes[0], nodes[1]}) snapshots.attach(node, snapshots.take());
  EXPECT_EQ(snapshots.deepest(std::span(nodes).first(1)), 0);  // a use of the first
  snapshots.attach(nodes[2], snapshots.take());
  EXPECT_NE(snapshots.of(nodes[0]), kNoSnapshot);
  EXPECT_EQ(snapshots.of(nodes[1]), kNoSnapshot);
}

}  // namespace
}  // namespace baton::cache
