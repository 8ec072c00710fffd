// The promise of the CPU backend with float state: bits do not depend on chunking, batch, threads, verification or rollback.
#include <random>

#include "base/test_seed.h"
#include "model/fixture.h"

namespace baton::testing {
namespace {

struct Case {
  std::string folder;
  DType activation;
  ops::ActivationQuant quant = ops::ActivationQuant::kNone;
  DType cache = DType::kU8;  // kU8: as the activation
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  std::string name =
      fmt::format("{}_{}{}{}", c.folder, dtype_name(c.activation), c.quant == ops::ActivationQuant::kNone ? "" : "_quantised",
                  c.cache == DType::kU8 ? "" : fmt::format("_{}_cache", dtype_name(c.cache)));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Exactness : public ::testing::TestWithParam<Case> {
 protected:
  static ModelSetup setup() {
    ModelSetup s = setup_for(GetParam().folder, GetParam().activation);
    s.quant = GetParam().quant;
    if (GetParam().cache != DType::kU8) s.latent = GetParam().cache;
    return s;
  }
  static std::vector<int32_t> tokens(int64_t n, uint32_t seed, int64_t vocabulary) {
    std::mt19937 random(seed);
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
    return ids;
  }
};

// Token by token: hidden rows, and slot and pages after every token.
struct Trace {
  std::vector<std::vector<std::byte>> rows;
  std::vector<std::vector<std::byte>> slots;
  std::vector<std::byte> pages;

  Trace(TestModel& m, const std::vector<int32_t>& ids) {
    m.runner->reset(0);
    slots.push_back(m.slot(0));
    for (const int32_t& id : ids) {
      rows.push_back(m.forward(0, {&id, 1}));
      slots.push_back(m.slot(0));
    }
    pages = m.pages(0, static_cast<int64_t>(ids.size()));
  }
  std::vector<std::byte> range(size_t first, size_t count) const {
    std::vector<std::byte> out;
    for (size_t i = first; i < first + count; ++i) out.insert(out.end(), rows[i].begin(), rows[i].end());
    return out;
  }
};

TEST_P(Exactness, PrefillEqualsTokenByTokenForEveryChunking) {
  TestModel m(setup());
  const std::vector<int32_t> ids = tokens(200, 1, m.model->config().vocab_size);
  const Trace trace(m, ids);
  for (const size_t chunk : {size_t{1}, size_t{3}, size_t{4}, size_t{5}, size_t{63}, size_t{64}, size_t{65}, ids.size()}) {
    m.runner->reset(1);
    for (size_t i = 0; i < ids.size(); i += chunk) {
      const size_t count = std::min(chunk, ids.size() - i);
      ASSERT_EQ(m.forward(1, std::span(ids).subspan(i, count)), trace.range(i, count)) << "chunk " << chunk << " at " << i;
    }
    EXPECT_EQ(m.slot(1), trace.slots.back()) << "chunk " << chunk;
    EXPECT_EQ(m.pages(1, 200), trace.pages) << "chunk " << chunk;
  }
}

TEST_P(Exactness, ThreadCountDoesNotMatter) {
  ModelSetup s = setup();
  std::vector<std::byte> one;
  for (const int threads : {1, 2, 3}) {
    s.threads = threads;
    TestModel m(s);
    const std::vector<int32_t> ids = tokens(131, 2, m.model->config().vocab_size);
    std::vector<std::byte> rows = m.forward(0, ids);
    const std::vector<std::byte> last = m.forward(0, {ids.data(), 1});
    rows.insert(rows.end(), last.begin(), last.end());
    if (threads == 1) one = rows;
    EXPECT_EQ(rows, one) << threads << " threads";
  }
}

TEST_P(Exactness, BatchOfManySequencesEqualsEachAlone) {
  TestModel m(setup());
  const int64_t v = m.model->config().vocab_size;
  const std::vector<int32_t> ids[3] = {tokens(70, 3, v), tokens(130, 4, v), tokens(9, 5, v)};
  std::vector<Trace> traces;
  for (const auto& t : ids) traces.emplace_back(m, t);
  for (int q = 0; q < 3; ++q) m.runner->reset(q);
  // Different strides, so that one launch mixes long chunks, single tokens, and sequences that have ended.
  const size_t stride[3] = {1, 17, 4};
  size_t at[3] = {0, 0, 0};
  while (at[0] < ids[0].size() || at[1] < ids[1].size() || at[2] < ids[2].size()) {
    std::vector<model::SequenceRunner::Rows> launch;
    std::vector<std::byte> expected;
    for (int q = 2; q >= 0; --q) {
      const size_t count = std::min(stride[q], ids[q].size() - at[q]);
      if (count == 0) continue;
      launch.push_back({q, std::span(ids[q]).subspan(at[q], count), false});
      const std::vector<std::byte> alone = traces[static_cast<size_t>(q)].range(at[q], count);
      expected.insert(expected.end(), alone.begin(), alone.end());
      at[q] += count;
    }
    ASSERT_EQ(TestModel::bytes(m.runner->forward(launch)), expected);
  }
  for (int q = 0; q < 3; ++q) EXPECT_EQ(m.slot(q), traces[static_cast<size_t>(q)].slots.back()) << "sequence " << q;
}

TEST_P(Exactness, MaterialiseFoldsWhatTheSlotsSay) {
  TestModel m(setup());
  const std::vector<int32_t> ids = tokens(30, 7, m.model->config().vocab_size);
  const Trace trace(m, ids);
  const model::CacheLayout& layout = m.model->cache_layout();
  for (const int32_t accepted : {0, 1, 5, 8}) {
    m.runner->reset(1);
    m.forward(1, std::span(ids).first(20));
    m.forward(1, std::span(ids).subspan(20, 8), true);
    std::memcpy(m.runner->slots().slot(1) + layout.fold_count_offset, &accepted, sizeof accepted);
    const int32_t slots[2] = {2, 1};  // 2 has nothing to fold
    m.model->materialise(slots, m.runner->slots());
    int32_t left = -1;
    std::memcpy(&left, m.runner->slots().slot(1) + layout.fold_count_offset, sizeof left);
    EXPECT_EQ(left, 0);
    for (const model::CacheRange& r : layout.ranges) {
      if (r.kind != model::CacheRange::Kind::kState || r.offset == layout.hidden_offset) continue;
      EXPECT_EQ(std::memcmp(m.runner->slots().slot(1) + r.offset, trace.slots[20 + static_cast<size_t>(accepted)].data() + r.offset,
                            static_cast<size_t>(r.bytes)),
                0)
          << "accepted " << accepted << ", range at " << r.offset;
    }
  }
}

TEST_P(Exactness, VerifyAndFoldEqualTokenByTokenForRandomAcceptance) {
  TestModel m(setup());
  const uint32_t seed = test_seed();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  const int64_t v = m.model->config().vocab_size;
  const std::vector<int32_t> ids = tokens(200, seed, v);
  const Trace trace(m, ids);
  m.runner->reset(1);
  m.runner->reset(2);
  size_t at = random() % 20;
  if (at > 0) m.forward(1, std::span(ids).first(at));
  while (at < ids.size()) {
    // The rows that will be rejected carry other tokens than the true continuation.
    const size_t rows = std::min<size_t>(1 + random() % 8, ids.size() - at);
    const size_t accepted = random() % (rows + 1);
    std::vector<int32_t> draft(ids.begin() + static_cast<std::ptrdiff_t>(at), ids.begin() + static_cast<std::ptrdiff_t>(at + rows));
    for (size_t i = accepted; i < rows; ++i) draft[i] = static_cast<int32_t>(random() % static_cast<uint64_t>(v));
    // A second sequence prefills in the same launch.
    const std::vector<int32_t> other = tokens(1 + random() % 3, random(), v);
    m.runner->reset(2);
    const model::SequenceRunner::Rows launch[2] = {{1, draft, true}, {2, other, false}};
    std::vector<std::byte> got = TestModel::bytes(m.runner->forward(launch));
    got.resize(trace.rows[0].size() * accepted);
    ASSERT_EQ(got, trace.range(at, accepted)) << "at " << at << ", accepted " << accepted << " of " << rows;
    m.runner->accept(1, static_cast<int32_t>(accepted));
    at += accepted;
    if (accepted == 0) {  // make progress
      ASSERT_EQ(m.forward(1, {&ids[at], 1}), trace.rows[at]);
      ++at;
    }
  }
  // The tail ring may hold rejected rows in entries that no live pool uses, so states and pages are compared, not whole slots.
  const model::CacheLayout& layout = m.model->cache_layout();
  for (const ops::KdaSlotLayout& kda : layout.kda) {
    const auto state = static_cast<size_t>(kda.state_offset);
    const size_t bytes = static_cast<size_t>(m.model->config().kda_width() * m.model->config().kda_head_dim * 4);
    EXPECT_EQ(std::memcmp(m.slot(1).data() + state, trace.slots.back().data() + state, bytes), 0);
    const auto window = static_cast<size_t>(kda.window_offset);
    const size_t window_bytes = static_cast<size_t>(9 * m.model->config().kda_width() * dtype_bytes(kda.activation_dtype));
    EXPECT_EQ(std::memcmp(m.slot(1).data() + window, trace.slots.back().data() + window, window_bytes), 0);
  }
  EXPECT_EQ(m.pages(1, 200), trace.pages);
}

// A thousand patterns of acceptance: after each, state and window are those of decoding token by token.
TEST(ExactnessOfFolds, AThousandRandomPatternsOfAcceptanceLeaveTheStateOfTokenByToken) {
  TestModel m(setup_for("tiny", DType::kF32));
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  const auto v = static_cast<uint64_t>(m.model->config().vocab_size);
  const auto same_states = [&m] {
    for (const model::CacheRange& r : m.model->cache_layout().ranges)
      if (r.kind == model::CacheRange::Kind::kState && r.offset != m.model->cache_layout().hidden_offset &&
          std::memcmp(m.runner->slots().slot(0) + r.offset, m.runner->slots().slot(1) + r.offset, static_cast<size_t>(r.bytes)) != 0)
        return false;
    return true;
  };
  for (int pattern = 0; pattern < 1000;) {
    m.runner->reset(0);
    m.runner->reset(1);
    for (int64_t at = 0; at < 480 && pattern < 1000; ++pattern) {
      std::vector<int32_t> draft(1 + random() % 8);
      for (int32_t& t : draft) t = static_cast<int32_t>(random() % v);
      const size_t accepted = random() % (draft.size() + 1);
      m.forward(1, draft, true);
      m.runner->accept(1, static_cast<int32_t>(accepted));
      for (size_t i = 0; i < accepted; ++i) m.forward(0, {&draft[i], 1});
      at += static_cast<int64_t>(accepted);
      ASSERT_TRUE(same_states()) << "pattern " << pattern << ": " << accepted << " of " << draft.size();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Exactness,
                         ::testing::Values(Case{"tiny", DType::kF32}, Case{"small-bf16", DType::kF32}, Case{"small-bf16", DType::kBF16},
                                           Case{"small-fp8", DType::kF32}, Case{"small-fp8", DType::kBF16},
                                           Case{"small-fp8", DType::kBF16, ops::ActivationQuant::kE4m3Block},
                                           Case{"small-fp8", DType::kBF16, ops::ActivationQuant::kE4m3Block, DType::kF8E4M3},
                                           Case{"mtp", DType::kBF16}, Case{"tiny", DType::kF32, ops::ActivationQuant::kNone, DType::kBF16}),
                         name_of);

}  // namespace
}  // namespace baton::testing
