#include "model/synth.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>

#include "model/random_weights.h"
#include "model/test_folder.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;

std::string golden_config(const std::string& name) {
  return *read_file(std::string(BATON_TEST_DATA "/golden/") + name + "/config.json", 1 << 20);
}

Result<SynthSummary> synth(const fs::path& out, const SynthOptions& options, const std::string& golden = "mtp") {
  return write_synthetic_checkpoint(golden_config(golden), "config.json", out, options);
}

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void expect_equal_folders(const fs::path& a, const fs::path& b) {
  ASSERT_EQ(names_in(a), names_in(b));
  for (const std::string& name : names_in(a)) EXPECT_EQ(*read_file(a / name, 1 << 30), *read_file(b / name, 1 << 30)) << name;
}

TEST(Synth, WritesCheckpointsThatOpen) {
  const TestFolder folder;
  for (const char* golden : {"tiny", "small-bf16", "small-fp8", "mtp"}) {
    for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kFp8}) {
      const fs::path out = folder.path() / fmt::format("{}-{}", golden, static_cast<int>(format));
      const auto summary = synth(out, {.format = format, .seed = 1}, golden);
      ASSERT_TRUE(summary.ok()) << summary.error().message;
      const auto checkpoint = Checkpoint::open(out);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
      EXPECT_EQ(static_cast<int64_t>(checkpoint->tensors().size()), summary->tensors);
      EXPECT_EQ(names_in(out), (std::vector<std::string>{"config.json", "model.safetensors"}));
      const std::string config = *read_file(out / "config.json", 1 << 20);
      EXPECT_EQ(config.find("quantization_config") != std::string::npos, format == WeightFormat::kFp8);
      EXPECT_EQ(config.find("float32\"") != config.rfind("float32\""), format == WeightFormat::kF32);  // the router's is always there
    }
  }
}

TEST(Synth, DependsOnTheSeedAlone) {
  const TestFolder folder;
  const auto path = [&](const char* name) { return folder.path() / name; };
  ASSERT_TRUE(synth(path("a"), {.format = WeightFormat::kFp8, .seed = 5, .shards = 3, .threads = 1}).ok());
  ASSERT_TRUE(synth(path("b"), {.format = WeightFormat::kFp8, .seed = 5, .shards = 3, .threads = 4}).ok());
  expect_equal_folders(path("a"), path("b"));
  EXPECT_EQ(Checkpoint::open(path("a"))->shard_count(), 3);

  // Another split of the same weights; another seed.
  ASSERT_TRUE(synth(path("c"), {.format = WeightFormat::kFp8, .seed = 5}).ok());
  ASSERT_TRUE(synth(path("d"), {.format = WeightFormat::kFp8, .seed = 6}).ok());
  const LooseTensors a = read_tensors(path("a"));
  const LooseTensors c = read_tensors(path("c"));
  const LooseTensors d = read_tensors(path("d"));
  ASSERT_EQ(a.size(), c.size());
  for (const auto& [name, t] : a) {
    EXPECT_EQ(t.bytes, c.at(name).bytes) << name;
    if (t.bytes.size() > 64) {
      EXPECT_NE(t.bytes, d.at(name).bytes) << name;
    }
  }
}

// FP8 weights are the F32 ones, to half a step of the format.
TEST(Synth, QuantisesBlocks) {
  const TestFolder folder;
  ASSERT_TRUE(synth(folder.path() / "f32", {.format = WeightFormat::kF32, .seed = 2}, "small-fp8").ok());
  ASSERT_TRUE(synth(folder.path() / "fp8", {.format = WeightFormat::kFp8, .seed = 2}, "small-fp8").ok());
  const auto wide = Checkpoint::open(folder.path() / "f32");
  const auto narrow = Checkpoint::open(folder.path() / "fp8");
  int64_t matrices = 0;
  for (const TensorEntry& t : narrow->tensors()) {
    const TensorEntry* scale = narrow->scale_of(t.name);
    if (scale == nullptr) continue;
    ++matrices;
    const auto* expected = reinterpret_cast<const float*>(wide->find(t.name)->data);
    const auto* codes = reinterpret_cast<const e4m3*>(t.data);
    int64_t largest_codes = 0;
    for (int64_t i = 0; i < t.elements(); ++i) {
      const int64_t row = i / t.shape[1];
      const int64_t column = i % t.shape[1];
      float s = 0;
      std::memcpy(&s, scale->data + (row / 128 * scale->shape[1] + column / 128) * 4, 4);
      ASSERT_NEAR(to_float(codes[i]) * s, expected[i], std::max(std::fabs(expected[i]) / 16, s * 0x1p-10F)) << t.name << " " << i;
      largest_codes += (codes[i].bits & 0x7FU) == 0x7EU ? 1 : 0;
    }
    EXPECT_GE(largest_codes, scale->elements());  // every block uses the whole range
  }
  EXPECT_EQ(matrices, 4 * 2 + 3 + 3 * 15);
}

TEST(Synth, RefusesToOverwrite) {
  const TestFolder folder;
  fs::create_directory(folder.path() / "out");
  folder.write("out/precious", "x");
  EXPECT_FALSE(synth(folder.path() / "out", {}).ok());
  EXPECT_EQ(names_in(folder.path() / "out"), std::vector<std::string>{"precious"});
  fs::remove(folder.path() / "out" / "precious");
  EXPECT_TRUE(synth(folder.path() / "out", {}).ok());
  EXPECT_FALSE(synth(folder.path() / "no" / "out", {}).ok());
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"out"});
}

TEST(Synth, LeavesNothingBehindWhenTheDiskIsFull) {
  const TestFolder folder;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1'000'000;
  setrlimit(RLIMIT_FSIZE, &small);
  const auto one = synth(folder.path() / "out", {});
  const auto many = synth(folder.path() / "out", {.shards = 2});  // the second file would fit
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().kind, Error::Kind::kExhausted);
  EXPECT_TRUE(many.ok());
  fs::remove_all(folder.path() / "out");
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Synth, LeavesNothingBehindWhenStopped) {
  const TestFolder folder;
  std::atomic<bool> stop{false};
  SynthOptions options{.threads = 2, .stop = &stop};
  options.progress = [&](int64_t done, int64_t total) { stop = stop || done > total / 2; };
  const auto summary = synth(folder.path() / "out", options);
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(summary.error().message.find("interrupted"), std::string::npos);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Synth, CutsIntoAnyNumberOfShards) {
  const TestFolder folder;
  for (const int64_t shards : {2, 7, 233}) {
    const fs::path out = folder.path() / std::to_string(shards);
    ASSERT_TRUE(synth(out, {.shards = shards}).ok());
    EXPECT_EQ(Checkpoint::open(out)->shard_count(), shards);
  }
  EXPECT_FALSE(synth(folder.path() / "out", {.shards = 234}).ok());
}

TEST(RandomTensor, ElementsDoNotDependOnTheParts) {
  const RandomTensor random("model.language_model.layers.0.mlp.up_proj.weight", {64, 48}, 9);
  std::vector<float> whole(64 * 48);
  random.fill(0, whole);
  for (const size_t part : {1U, 3U, 5U, 64U, 100U, 1000U}) {
    std::vector<float> pieces(whole.size());
    for (size_t i = 0; i < pieces.size(); i += part)
      random.fill(static_cast<int64_t>(i), std::span(pieces).subspan(i, std::min(part, pieces.size() - i)));
    EXPECT_EQ(pieces, whole) << part;
  }
}

struct Moments {
  double mean = 0, deviation = 0;
  float low = 0, high = 0;
};
Moments moments(const std::string& name, const std::vector<int64_t>& shape) {
  std::vector<float> x(200'000);
  RandomTensor(name, shape, 4).fill(0, x);
  Moments m;
  for (const float v : x) m.mean += v / static_cast<double>(x.size());
  for (const float v : x) m.deviation += (v - m.mean) * (v - m.mean) / static_cast<double>(x.size());
  m.deviation = std::sqrt(m.deviation);
  m.low = *std::min_element(x.begin(), x.end());
  m.high = *std::max_element(x.begin(), x.end());
  return m;
}

TEST(RandomTensor, HasTheScaleOfItsRole) {
  const std::string layer = "model.language_model.layers.3.";
  Moments m = moments(layer + "input_layernorm.weight", {4096});
  EXPECT_NEAR(m.mean, 1.0, 0.01);
  EXPECT_NEAR(m.deviation, 0.25, 0.005);
  m = moments(layer + "self_attn.q_proj.weight", {512, 400});
  EXPECT_NEAR(m.mean, 0.0, 0.001);
  EXPECT_NEAR(m.deviation, 1.0 / 20, 0.001);
  m = moments(layer + "self_attn.dt_bias", {8192});
  EXPECT_GE(m.low, -4.5F);
  EXPECT_LE(m.high, 0.5F);
  EXPECT_NEAR(m.mean, -2.0, 0.02);
  m = moments(layer + "mlp.experts.7.down_proj.weight", {512, 400});
  EXPECT_NEAR(m.deviation, 0.12 / 20, 0.001);
  m = moments(layer + "mlp.shared_experts.down_proj.weight", {512, 400});
  EXPECT_NEAR(m.deviation, 0.25 / 20, 0.001);
}

}  // namespace
}  // namespace baton::model
