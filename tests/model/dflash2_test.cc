// The DFlash2 drafter beside what PyTorch computes from the same weights (tools/small_model/make_drafter_golden.py), and its bits:
// independent of batch, threads, and of how rows were cut into calls; what it knows of a sequence is in the slot's window alone.
#include "model/dflash2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "model/safetensors.h"
#include "ops/cpu/backend.h"

namespace baton::model {
namespace {

const std::string kTarget = BATON_TEST_DATA "/golden/mtp";
const std::string kDrafter = BATON_TEST_DATA "/drafters/dflash2";
constexpr int64_t kMaxTokens = 192;
constexpr int kSequences = 12;

using Bytes = std::vector<std::byte>;

// A target and its drafter with pages and slots for a few sequences, all in host memory.
class Drafting {
 public:
  explicit Drafting(DType activation = DType::kF32, int threads = 2, cpu::Isa isa = cpu::detect_isa())
      : backend({.threads = threads, .isa = isa}) {
    const auto own = DFlash2Checkpoint::open(kDrafter);
    const auto checkpoint = Checkpoint::open(kTarget);
    ModelOptions options;
    options.numerics.activation = activation;
    options.cache = {.activation = activation, .latent = activation, .index = activation};
    options.drafter = dflash2_needs(own->config(), activation);
    options.max_rows = kMaxTokens;
    options.max_logits_rows = 4 * own->config().drafts() + 3;  // fewer than a whole batch drafts: logits come in turns
    options.max_sequences = kSequences;
    options.max_pages = kMaxTokens / ops::kPageTokens;
    target = std::move(*Glm5Next::load(*checkpoint, backend, options));
    drafter =
        std::move(*DFlash2Drafter::load(*own, *target, backend, {.max_rows = kMaxTokens, .max_sequences = kSequences, .vocabulary = 256}));
    pages_ = std::move(*backend.allocate(kSequences * options.max_pages * target->cache_layout().page_bytes));
    slots_ = std::move(*backend.allocate(kSequences * target->cache_layout().slot_bytes));
  }

  // Runs rows of one sequence; features and hidden rows stay until the next call.
  void forward(int sequence, int32_t position, std::span<const int32_t> ids, bool verify = false) {
    rows_ = Rows(sequence, position, static_cast<int32_t>(ids.size()), verify);
    const int64_t d = target->config().hidden_size;
    const int64_t width = drafter->config().feature_width();
    const DType type = target->numerics().activation;
    hidden_memory_.resize(ids.size() * static_cast<size_t>(d * dtype_bytes(type)));
    feature_memory_.resize(ids.size() * static_cast<size_t>(width * dtype_bytes(type)));
    hidden = {hidden_memory_.data(), type, static_cast<int64_t>(ids.size()), d, d};
    features = {feature_memory_.data(), type, static_cast<int64_t>(ids.size()), width, width};
    target->forward({ids.data(), launch(rows_)}, hidden, features);
  }
  // The first `count` rows of the last forward have become final.
  void commit(int32_t count) {
    rows_.sequence.row_count = count;
    drafter->commit({.sequences = {&rows_.sequence, 1},
                     .rows = launch(rows_),
                     .hidden = hidden.row_range(0, count),
                     .features = features.row_range(0, count)});
  }
  void feed(int sequence, std::span<const int32_t> ids, size_t first, size_t last, size_t step) {
    for (size_t t = first; t < last; t += step) {
      const size_t n = std::min(step, last - t);
      forward(sequence, static_cast<int32_t>(t), ids.subspan(t, n));
      commit(static_cast<int32_t>(n));
    }
  }

  struct Wanted {
    int sequence;
    int32_t position;
    int32_t anchor;
    int32_t count = 7;
    float temperature = 0;
  };
  std::vector<std::vector<int32_t>> draft(const std::vector<Wanted>& wanted) {
    std::vector<ops::SequenceRows> sequences;
    std::vector<ops::SamplingRow> sampling;
    std::vector<int32_t> anchors, counts;
    for (const Wanted& w : wanted) {
      sequences.push_back({static_cast<int32_t>(sequences.size()), 1, w.position, w.sequence, 0});
      sampling.push_back({.temperature = w.temperature, .seed = 7, .position = w.position + 1});
      anchors.push_back(w.anchor);
      counts.push_back(w.count);
    }
    LaunchRows rows;
    rows.slots = slots();
    std::vector<int32_t> ids(wanted.size() * 9, -1);
    drafter->draft({.sequences = sequences, .rows = rows, .anchors = anchors.data(), .counts = counts, .sampling = sampling}, ids.data(),
                   9);
    std::vector<std::vector<int32_t>> out;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto row = ids.begin() + static_cast<std::ptrdiff_t>(i * 9);
      out.emplace_back(row, row + counts[i]);
      EXPECT_EQ(row[counts[i]], -1) << "more was written than asked for";
    }
    return out;
  }

  ops::SlotPoolView slots() const { return {slots_.data(), target->cache_layout().slot_bytes}; }
  std::byte* window(int sequence) const { return slots().slot(sequence) + target->cache_layout().drafter_window_offset; }
  Bytes window_bytes(int sequence) const { return {window(sequence), window(sequence) + drafter->needs().window_bytes}; }

  cpu::CpuBackend backend;
  std::unique_ptr<Glm5Next> target;
  std::unique_ptr<DFlash2Drafter> drafter;
  MatrixView hidden, features;

 private:
  struct Rows {
    ops::SequenceRows sequence{};
    std::vector<int32_t> owner, positions, table;
    Rows() = default;
    Rows(int slot, int32_t position, int32_t count, bool verify)
        : sequence{0, count, position, slot, verify ? 1 : 0}, owner(static_cast<size_t>(count)), positions(static_cast<size_t>(count)) {
      std::iota(positions.begin(), positions.end(), position);
      for (int32_t p = 0; p < kMaxTokens / ops::kPageTokens; ++p) table.push_back(p * kSequences + slot);
    }
  };
  LaunchRows launch(const Rows& r) const {
    LaunchRows rows;
    rows.batch = {
        &r.sequence, 1, r.sequence.row_count, r.owner.data(), r.positions.data(), r.table.data(), static_cast<int32_t>(r.table.size())};
    rows.pages = {pages_.data(), target->cache_layout().page_bytes};
    rows.slots = slots();
    return rows;
  }

  Buffer pages_, slots_;
  Rows rows_;
  Bytes hidden_memory_, feature_memory_;
};

// drafts.safetensors, in place.
class Reference {
 public:
  Reference() : file_(*MappedFile::open(kDrafter + "/drafts.safetensors")), tensors_(*parse_safetensors(file_.bytes(), "drafts")) {}
  template <class T>
  std::span<const T> get(const std::string& name) const {
    for (const SafetensorsTensor& t : tensors_)
      if (t.name == name)
        return {reinterpret_cast<const T*>(file_.bytes().data() + t.begin), static_cast<size_t>(t.end - t.begin) / sizeof(T)};
    throw std::runtime_error(name);
  }

 private:
  MappedFile file_;
  std::vector<SafetensorsTensor> tensors_;
};

// max |x - reference| / max |reference| over rows
double error(ConstMatrixView x, std::span<const float> reference) {
  double worst = 0;
  double largest = 0;
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t c = 0; c < x.cols; ++c) {
      const double expected = reference[static_cast<size_t>(r * x.cols + c)];
      worst = std::max(worst, std::fabs(double{x.row<float>(r)[c]} - expected));
      largest = std::max(largest, std::fabs(expected));
    }
  return worst / largest;
}

std::vector<int32_t> other_text(size_t n, uint32_t seed) {
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>((seed = seed * 1664525U + 1013904223U) >> 24U);
  return ids;
}

TEST(DFlash2, ProposesWhatPyTorchProposes) {
  const Reference reference;
  const auto ids = reference.get<int32_t>("ids");
  const auto anchors = reference.get<int32_t>("anchors");
  const auto drafts = reference.get<int32_t>("drafts");
  for (const cpu::Isa isa : {cpu::Isa::kPlain, cpu::detect_isa()}) {
    Drafting d(DType::kF32, 2, isa);
    d.forward(0, 0, ids);
    EXPECT_LT(error(d.features, reference.get<float>("features")), 2e-5);
    int32_t committed = 0;
    for (size_t i = 0; i < anchors.size(); ++i) {
      const int32_t at = anchors[i];
      d.forward(1, committed, ids.subspan(static_cast<size_t>(committed), static_cast<size_t>(at - committed)));
      d.commit(at - committed);
      committed = at;
      const std::vector<int32_t> got = d.draft({{1, at, ids[static_cast<size_t>(at)]}})[0];
      EXPECT_EQ(got, std::vector<int32_t>(drafts.begin() + static_cast<std::ptrdiff_t>(7 * i),
                                          drafts.begin() + static_cast<std::ptrdiff_t>(7 * i + 7)))
          << "anchor " << at;
      const size_t block = 8 * static_cast<size_t>(d.target->config().hidden_size);
      EXPECT_LT(error(d.drafter->last_hidden(), reference.get<float>("hidden").subspan(i * block, block)), 5e-5) << "anchor " << at;
    }
  }
}

TEST(DFlash2, WindowAndDraftsDependOnNeitherCutsNorBatchNorThreads) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const std::vector<int32_t> ids = other_text(150, 3);
    Drafting d(type, 3);
    Drafting single(type, 1);
    single.feed(0, ids, 0, ids.size(), 1);
    const std::vector<int32_t> expected = single.draft({{0, 150, 9}})[0];
    std::vector<Drafting::Wanted> all;
    int sequence = 0;
    for (const size_t step : {3, 8, 39, 41, 64, 150}) {
      d.feed(sequence, ids, 0, ids.size(), step);
      EXPECT_EQ(d.window_bytes(sequence), single.window_bytes(0)) << "in steps of " << step;
      EXPECT_EQ(d.draft({{sequence, 150, 9}})[0], expected);
      all.push_back({sequence++, 150, 9});
    }
    // Others among them, of other lengths, with other counts, some drawn with a temperature.
    const std::vector<int32_t> text = other_text(70, 4);
    for (const size_t n : {1, 12, 40, 70}) {
      d.feed(sequence, text, 0, n, 16);
      all.push_back({sequence++, static_cast<int32_t>(n), 17, static_cast<int32_t>(1 + n % 7), n % 2 == 0 ? 0.7F : 0.0F});
    }
    const auto together = d.draft(all);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(together[i], d.draft({all[i]})[0]) << "sequence " << i;
    EXPECT_EQ(together[0], expected);
  }
}

// Rows of verify passes, of which some are rejected, leave the window that token by token leaves.
TEST(DFlash2, RejectedRowsLeaveNothingBehind) {
  const std::vector<int32_t> ids = other_text(120, 5);
  Drafting plain;
  Drafting d;
  plain.feed(0, ids, 0, 10, 10);
  d.feed(0, ids, 0, 10, 10);
  size_t at = 10;
  for (const int32_t accepted : {1, 8, 3, 2, 8, 8, 1, 5, 7, 6, 4, 8, 8}) {
    std::vector<int32_t> rows(ids.begin() + static_cast<std::ptrdiff_t>(at), ids.begin() + static_cast<std::ptrdiff_t>(at) + accepted);
    while (rows.size() < 8) rows.push_back((rows.back() + 31) % 256);  // wrong drafts
    const auto begin = static_cast<int32_t>(at);
    const Bytes before = d.window_bytes(0);
    d.draft({{0, begin, rows[0]}});
    EXPECT_EQ(d.window_bytes(0), before) << "drafting wrote";
    d.forward(0, begin, rows, true);
    d.commit(accepted);
    const int32_t slot = 0;
    d.target->fold(&slot, &accepted, 1, d.slots());
    plain.feed(0, ids, at, at + static_cast<size_t>(accepted), 1);
    at += static_cast<size_t>(accepted);
    ASSERT_EQ(d.window_bytes(0), plain.window_bytes(0)) << "at " << at;
    ASSERT_EQ(d.draft({{0, static_cast<int32_t>(at), 3}}), plain.draft({{0, static_cast<int32_t>(at), 3}}));
  }
}

// A warms a prefix, B takes its window at a page edge and goes another way: B drafts as if it had come alone.
TEST(DFlash2, DivergingAtAPageEdgeDraftsLikeColdStart) {
  std::vector<int32_t> a = other_text(130, 6);
  std::vector<int32_t> b = other_text(130, 7);
  std::copy_n(a.begin(), 64, b.begin());
  Drafting d;
  d.feed(0, a, 0, 64, 64);
  const Bytes snapshot = d.window_bytes(0);
  d.feed(0, a, 64, 130, 9);
  d.draft({{0, 130, 1}});

  d.feed(1, b, 0, 64, 64);  // the target's own state of B; its caches have tests of their own
  std::fill_n(d.window(1), snapshot.size(), std::byte{0xFF});
  std::memcpy(d.window(1), snapshot.data(), snapshot.size());
  Drafting cold;
  size_t at = 64;
  cold.feed(1, b, 0, 64, 5);
  for (const size_t next : {64, 65, 73, 103, 104, 130}) {
    d.feed(1, b, at, next, 8);
    cold.feed(1, b, at, next, 1);
    at = next;
    EXPECT_EQ(d.draft({{1, static_cast<int32_t>(at), 77}}), cold.draft({{1, static_cast<int32_t>(at), 77}})) << "at " << at;
  }
  EXPECT_EQ(d.window_bytes(1), cold.window_bytes(1));
}

TEST(DFlash2, RefusesAnotherTarget) {
  cpu::CpuBackend backend({.threads = 1});
  const auto own = DFlash2Checkpoint::open(kDrafter);
  const auto checkpoint = Checkpoint::open(BATON_TEST_DATA "/golden/tiny");
  ModelOptions options;
  options.max_rows = options.max_logits_rows = options.max_sequences = options.max_pages = 8;
  const auto target = Glm5Next::load(*checkpoint, backend, options);
  const auto drafter = DFlash2Drafter::load(*own, **target, backend, {.max_rows = 8, .max_sequences = 1, .vocabulary = 256});
  ASSERT_FALSE(drafter.ok());
  EXPECT_NE(drafter.error().message.find("drafts for another target"), std::string::npos) << drafter.error().message;
  EXPECT_NE(drafter.error().message.find("hidden_size is 96"), std::string::npos);
}

}  // namespace
}  // namespace baton::model
