#include <random>

#include "base/test_seed.h"
#include "transfer/in_process.h"
#include "transfer/introduction.h"
#include "transfer/remote.h"
#include "transfer/transport_contract.h"

namespace baton::transfer {
namespace {

class OneProcess final : public Place {
 public:
  std::unique_ptr<Transport> make() override { return std::make_unique<InProcess>(exchange_); }
  Status introduce(Transport&, Transport&) override { return {}; }

 private:
  Exchange exchange_;
};
INSTANTIATE_TEST_SUITE_P(InProcess, Contract,
                         ::testing::Values(Kind{[]() -> std::unique_ptr<Place> { return std::make_unique<OneProcess>(); }}));

TEST(Slices, EqualLayoutsAreOneCopyAndOthersAreCut) {
  const Runs whole = {{0, 0, 16, 0}, {1, 0, 16, 16}};
  const std::vector<Slice> one = slices(whole, whole);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].bytes, 32);
  // Heads of a layer over two ranks: each sends its half to where it belongs.
  const Runs low = {{0, 0, 8, 0}, {1, 0, 8, 8}}, high = {{0, 8, 8, 0}, {1, 8, 8, 8}};
  const std::vector<Slice> first = slices(low, whole), second = slices(high, whole);
  ASSERT_EQ(first.size(), 2U);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[1].from, 8);
  EXPECT_EQ(second[1].to, 24);
  EXPECT_TRUE(check_cover(std::vector<Runs>{low, high}, whole).ok());
  EXPECT_NE(check_cover(std::vector<Runs>{low}, whole).error().message.find("byte 8 of array 0 is with no sender"), std::string::npos);
  EXPECT_NE(check_cover(std::vector<Runs>{low, whole}, whole).error().message.find("byte 0 of array 0 would be sent twice"),
            std::string::npos);
  EXPECT_TRUE(slices(low, high).empty());
}

TEST(InProcess, NothingMovesBeforeProgressAndWhoHasLeftGetsNothing) {
  Process a({{0, 0, 16, 0}}), b({{0, 0, 16, 0}});
  a.fill();
  Exchange exchange;
  InProcess from(exchange), to(exchange);
  int told = 0;
  to.on_event([&told] { ++told; });
  ASSERT_TRUE(from.enter(kFirst, a.memory()).ok());
  ASSERT_TRUE(to.enter(kSecond, b.memory()).ok());
  ASSERT_TRUE(from.post({.to = kSecond, .from_pages = {1}, .to_pages = {1}, .tag = 2}).ok());
  to.progress();
  EXPECT_TRUE(to.arrivals().empty());
  from.progress();
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(from.post({.to = kSecond, .from_pages = {0}, .to_pages = {0}, .tag = 3}).ok());
  to.leave();
  from.progress();
  ASSERT_EQ(from.completions().size(), 1U);
  EXPECT_FALSE(from.completions()[0].ok);
  EXPECT_EQ(from.metrics().failures[static_cast<size_t>(Failure::kGone)], 1);
  EXPECT_EQ(b.pages[0], std::byte{0xEE});
  EXPECT_NE(from.post({.to = kSecond}).error().message.find("instance 2 (epoch 1) is not here"), std::string::npos);
}

Introduction some_introduction() {
  return {.transport = "nixl",
          .agent = {7, uint64_t{1} << 40},
          .memory = {.pages = {reinterpret_cast<std::byte*>(0x7000), 4096, 100},
                     .slots = {reinterpret_cast<std::byte*>(0x9000000), 512, 3},
                     .page_runs = {{0, 0, 4000, 0}, {5, 100, 96, 4000}},
                     .slot_runs = {{{9, 0, 512, 0}, 4}},
                     .fingerprint = 0xFEDCBA9876543210},
          .device = 2,
          .doormat = 0x5000,
          .address = {std::byte{1}, std::byte{0}, std::byte{3}}};
}

TEST(Introduction, SaysWhatItWasTold) {
  const Introduction i = some_introduction();
  const Result<Introduction> back = decode_introduction(encode(i));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, i);
  EXPECT_EQ(back->memory.slot_runs[0].part, 4U);
  EXPECT_EQ(back->memory.page_runs[1].first, 100);
  EXPECT_EQ(back->device, 2);
  EXPECT_EQ(back->agent, i.agent);
}

TEST(Introduction, NonsenseIsRefusedWithAReason) {
  const std::vector<std::byte> good = encode(some_introduction());
  const auto problem = [](const std::vector<std::byte>& bytes) { return decode_introduction(bytes).error().message; };
  EXPECT_NE(problem({}).find("does not begin like one"), std::string::npos);
  for (size_t n = 4; n < good.size(); ++n) {
    const Result<Introduction> r = decode_introduction(std::vector<std::byte>(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)));
    ASSERT_FALSE(r.ok()) << n;
  }
  for (size_t n = 0; n < good.size(); ++n) {
    std::vector<std::byte> bad = good;
    bad[n] ^= std::byte{0x10};
    ASSERT_FALSE(decode_introduction(bad).ok()) << n;
  }
  std::vector<std::byte> later = good;
  later[4] = std::byte{kIntroductionVersion + 1};
  EXPECT_NE(problem(later).find("version is 2 and this program's 1"), std::string::npos);
  EXPECT_NE(problem(std::vector<std::byte>(good.begin(), good.end() - 1)).find("damaged"), std::string::npos);
  // Whole and well-formed, and still none: the checksum is no secret.
  const auto changed = [&problem](const std::function<void(Introduction&)>& change) {
    Introduction i = some_introduction();
    change(i);
    return problem(encode(i));
  };
  EXPECT_NE(changed([](Introduction& i) { i.memory.pages.objects = -1; }).find("memory cannot be"), std::string::npos);
  EXPECT_NE(changed([](Introduction& i) { i.memory.pages.data = nullptr; }).find("memory cannot be"), std::string::npos);
  EXPECT_NE(changed([](Introduction& i) { i.memory.slots.object_bytes = INT64_MAX; }).find("memory cannot be"), std::string::npos);
  EXPECT_NE(changed([](Introduction& i) { i.memory.page_runs[0].bytes = 4097; }).find("lie outside"), std::string::npos);
  EXPECT_NE(changed([](Introduction& i) { i.memory.page_runs[0].offset = INT64_MAX; }).find("lie outside"), std::string::npos);
  EXPECT_NE(changed([](Introduction& i) { i.memory.slot_runs[0].run.first = -1; }).find("lie outside"), std::string::npos);
  EXPECT_NE(changed([](Introduction& i) { i.device = -2; }).find("device"), std::string::npos);
  EXPECT_NE(changed([](Introduction& i) { i.address.resize(kMostIntroductionBytes); }).find("at most"), std::string::npos);
}

TEST(Introduction, RandomBytesBehindAGoodHeadEndNothing) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  int read = 0;
  for (int round = 0; round < 2000; ++round) {
    Introduction i = some_introduction();
    // Fields of any value: what is read again is what was written.
    i.agent = {static_cast<uint32_t>(random()), random()};
    i.memory.pages.objects = static_cast<int32_t>(random());
    i.memory.pages.object_bytes = static_cast<int64_t>(random()) << (random() % 32);
    i.memory.page_runs.assign(random() % 5,
                              {static_cast<uint32_t>(random()), static_cast<int64_t>(random()), static_cast<int64_t>(random() % 100), 3});
    i.device = static_cast<int32_t>(random());
    if (const Result<Introduction> back = decode_introduction(encode(i)); back.ok()) {
      ++read;
      ASSERT_EQ(*back, i);
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace baton::transfer
