// Forms of the same mathematics agree: absorbed and expanded attention, recurrent and chunked KDA, sparse and dense selection.
#include <algorithm>
#include <fstream>
#include <random>

#include "base/file.h"
#include "golden/recorder.h"
#include "model/fixture.h"

namespace baton::testing {
namespace {

std::vector<int32_t> tokens(int64_t n, uint32_t seed, int64_t vocabulary) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
  return ids;
}

std::vector<float> hidden(const ModelSetup& s, int64_t n, uint32_t seed, golden::Recorder* recorder = nullptr) {
  TestModel m(s);
  const std::vector<int32_t> ids = tokens(n, seed, m.model->config().vocab_size);
  const model::SequenceRunner::Rows rows{0, ids, false};
  std::vector<float> out;
  golden::append_rows(m.runner->forward({&rows, 1}, recorder), out);
  return out;
}

double relative(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::fabs(double{a[i]} - double{b[i]}));
    largest = std::max(largest, std::fabs(double{b[i]}));
  }
  return worst / largest;
}

class Equivalence : public ::testing::TestWithParam<const char*> {
 protected:
  static ModelSetup setup() { return setup_for(GetParam(), DType::kF32); }
};

TEST_P(Equivalence, AbsorbedAttentionEqualsExpanded) {
  ModelSetup expanded = setup();
  expanded.expanded_attention = true;
  EXPECT_LT(relative(hidden(setup(), 100, 1), hidden(expanded, 100, 1)), 1e-5);
}

TEST_P(Equivalence, ChunkedKdaEqualsRecurrent) {
  ModelSetup chunked = setup();
  chunked.chunked_kda = true;
  for (const int64_t n : {1, 63, 64, 65, 200}) EXPECT_LT(relative(hidden(chunked, n, 2), hidden(setup(), n, 2)), 1e-4) << n << " tokens";
}

// The same checkpoint with an index_topk that no prompt exceeds: dense attention.
class DenseCopy {
 public:
  explicit DenseCopy(const std::filesystem::path& from)
      : dir_(std::filesystem::temp_directory_path() / ("baton_dense_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_);
    for (const auto& entry : std::filesystem::directory_iterator(from))
      if (entry.path().filename() != "config.json" && !std::filesystem::exists(dir_ / entry.path().filename()))
        std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), dir_ / entry.path().filename());
    std::string text = *read_file(from / "config.json", 1 << 20);
    const size_t key = text.find("\"index_topk\": ") + 14;
    text.replace(key, text.find_first_not_of("0123456789", key) - key, "4096");
    std::ofstream(dir_ / "config.json") << text;
  }
  ~DenseCopy() { std::filesystem::remove_all(dir_); }
  const std::filesystem::path& dir() const { return dir_; }

 private:
  std::filesystem::path dir_;
};

TEST_P(Equivalence, SparseEqualsDenseUpToTopkAndDiffersBeyond) {
  const DenseCopy copy(setup().dir);
  ModelSetup dense = setup();
  dense.dir = copy.dir();
  const model::Config config = *model::load_config(setup().dir);
  const int64_t limit = config.index_topk + config.index_kpool - 1;  // rows up to here attend to everything
  const std::vector<float> a = hidden(setup(), limit + 60, 3);
  const std::vector<float> b = hidden(dense, limit + 60, 3);
  const auto cut = static_cast<std::ptrdiff_t>(limit * config.hidden_size);
  EXPECT_EQ(std::vector<float>(a.begin(), a.begin() + cut), std::vector<float>(b.begin(), b.begin() + cut));
  EXPECT_GT(relative({a.begin() + cut, a.end()}, {b.begin() + cut, b.end()}), 1e-4);
}

std::string name_of(const ::testing::TestParamInfo<const char*>& folder) {
  std::string name = folder.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden, Equivalence, ::testing::Values("tiny", "small-bf16", "small-fp8", "mtp"), name_of);

}  // namespace
}  // namespace baton::testing
