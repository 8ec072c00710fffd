#include "model/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "model/test_folder.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;

#define EXPECT_MENTIONS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const std::string kGolden = BATON_TEST_DATA "/golden/";
const std::string kLayer1 = "model.language_model.layers.1.";  // sparse attention, MoE in every golden folder used here

std::string bytes_of(float x) { return {reinterpret_cast<const char*>(&x), sizeof x}; }

// Opens a copy of a golden folder as one file, after a change of its tensors; the error, or nothing.
std::string error_after(const std::string& golden, const std::function<void(LooseTensors&)>& change) {
  const TestFolder folder;
  fs::copy_file(kGolden + golden + "/config.json", folder.path() / "config.json");
  LooseTensors tensors = read_tensors(kGolden + golden);
  change(tensors);
  folder.write("model.safetensors", to_safetensors(tensors));
  const auto checkpoint = Checkpoint::open(folder.path());
  if (!checkpoint.ok()) {
    EXPECT_MENTIONS(checkpoint.error().message, folder.path().string());
  }
  return checkpoint.ok() ? "" : checkpoint.error().message;
}

// A copy of a golden folder as it is.
void copy_golden(const std::string& golden, const TestFolder& folder) {
  for (const auto& entry : fs::directory_iterator(kGolden + golden))
    if (entry.path().filename().string().find("golden") == std::string::npos)
      fs::copy_file(entry.path(), folder.path() / entry.path().filename());
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

TEST(Checkpoint, OpensGoldenFolders) {
  for (const char* name : {"tiny", "small-bf16", "small-fp8", "mtp"}) {
    const auto c = Checkpoint::open(kGolden + name);
    ASSERT_TRUE(c.ok()) << c.error().message;
    int64_t scales = 0;
    for (const TensorEntry& t : c->tensors()) {
      EXPECT_EQ(c->find(t.name), &t);
      EXPECT_EQ(t.bytes, t.elements() * dtype_bytes(t.dtype));
      scales += t.name.ends_with("_scale_inv") ? 1 : 0;
      if (t.dtype == DType::kF8E4M3) {
        EXPECT_NE(c->scale_of(t.name), nullptr) << t.name;
      }
    }
    EXPECT_EQ(static_cast<int64_t>(c->tensors().size()), static_cast<int64_t>(expected_tensors(c->config()).size()) + scales);
    EXPECT_TRUE(std::is_sorted(c->tensors().begin(), c->tensors().end(), [](const auto& a, const auto& b) { return a.name < b.name; }));
    EXPECT_EQ(c->find("model.language_model.nothing"), nullptr);
  }
  EXPECT_EQ(Checkpoint::open(kGolden + "small-bf16")->shard_count(), 3);
  EXPECT_EQ(Checkpoint::open(kGolden + "small-bf16")->skipped_vision_tensors(), 25);
  EXPECT_GT(Checkpoint::open(kGolden + "tiny")->file_bytes(), 1'800'000);
}

TEST(Checkpoint, EntriesPointAtTheirBytes) {
  const auto c = Checkpoint::open(kGolden + "small-fp8");
  for (const auto& [name, loose] : read_tensors(kGolden + "small-fp8")) {
    const TensorEntry* t = c->find(name);
    ASSERT_NE(t, nullptr) << name;
    EXPECT_EQ(t->shape, loose.shape);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(t->data), static_cast<size_t>(t->bytes)), loose.bytes);
    model::Checkpoint::drop_pages(t->data, t->bytes);
    EXPECT_EQ(std::memcmp(t->data, loose.bytes.data(), loose.bytes.size()), 0);  // still readable
  }
}

TEST(Checkpoint, MovesWithItsTensors) {
  auto opened = Checkpoint::open(kGolden + "tiny");
  const Checkpoint moved = std::move(opened).value();
  const TensorEntry* norm = moved.find("model.language_model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->shape, std::vector<int64_t>{64});
}

TEST(Checkpoint, ReportsMissingAndUnexpectedTensors) {
  const std::string message = error_after("tiny", [](LooseTensors& t) {
    t.erase("lm_head.weight");
    t.erase(kLayer1 + "hc_ffn_base");
    t["model.language_model.layers.1.self_attn.surprise"] = {"F32", {1}, bytes_of(1)};
    t["model.visual.anything"] = {"F16", {2}, "abcd"};
  });
  EXPECT_MENTIONS(message, "missing tensors (2)");
  EXPECT_MENTIONS(message, "lm_head.weight [320, 64]");
  EXPECT_MENTIONS(message, kLayer1 + "hc_ffn_base");
  EXPECT_MENTIONS(message, "unexpected tensors (1)");
  EXPECT_MENTIONS(message, "self_attn.surprise (F32 [1])");
  EXPECT_EQ(message.find("model.visual"), std::string::npos);
}

TEST(Checkpoint, CountsWhatItDoesNotList) {
  const std::string message = error_after("tiny", [](LooseTensors& t) {
    std::erase_if(t, [](const auto& entry) { return entry.first.find(".experts.") != std::string::npos; });
  });
  EXPECT_MENTIONS(message, "missing tensors (96)");
  EXPECT_MENTIONS(message, "and 76 more");
  EXPECT_LT(std::count(message.begin(), message.end(), '\n'), 30);
}

TEST(Checkpoint, ReportsWrongShapesAndTypesTogether) {
  const std::string message = error_after("tiny", [](LooseTensors& t) {
    t["model.language_model.norm.weight"].shape = {8, 8};
    t["lm_head.weight"].dtype = "I32";
    t[kLayer1 + "hc_attn_scale"] = {"F64", {3}, std::string(24, '\0')};
  });
  EXPECT_MENTIONS(message, "model.language_model.norm.weight is [8, 8], [64] is expected");
  EXPECT_MENTIONS(message, "lm_head.weight is I32, BF16 or F32 is expected");
  EXPECT_MENTIONS(message, "hc_attn_scale is F64");
  EXPECT_EQ(message.find("missing"), std::string::npos);
}

TEST(Checkpoint, AcceptsBothSpellingsOfThePoolingParameters) {
  const std::string gate = kLayer1 + "self_attn.indexer.index_kpool_compress_gate";
  const std::string ape = kLayer1 + "self_attn.indexer.index_kpool_compress_ape";
  const TestFolder folder;
  copy_golden("tiny", folder);
  LooseTensors tensors = read_tensors(folder.path());
  for (const std::string& name : {gate, ape}) {
    auto node = tensors.extract(name);
    node.key() += ".weight";
    tensors.insert(std::move(node));
  }
  folder.write("model.safetensors", to_safetensors(tensors));
  const auto c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_NE(c->find(gate), nullptr);
  EXPECT_EQ(c->find(gate + ".weight"), nullptr);

  tensors[gate] = tensors[gate + ".weight"];
  folder.write("model.safetensors", to_safetensors(tensors));
  EXPECT_MENTIONS(Checkpoint::open(folder.path()).error().message, "tensors that appear twice");
}

TEST(Checkpoint, TiedEmbeddingsNeedNoHead) {
  const TestFolder folder;
  copy_golden("tiny", folder);
  std::string config = folder.read("config.json");
  for (int i = 0; i < 2; ++i) replace(config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  folder.write("config.json", config);
  EXPECT_MENTIONS(Checkpoint::open(folder.path()).error().message, "lm_head.weight");
  LooseTensors tensors = read_tensors(folder.path());
  tensors.erase("lm_head.weight");
  folder.write("model.safetensors", to_safetensors(tensors));
  EXPECT_TRUE(Checkpoint::open(folder.path()).ok());
}

TEST(Checkpoint, NeedsTheMtpLayerExactlyIfConfigured) {
  EXPECT_MENTIONS(error_after("mtp", [](LooseTensors& t) { t.erase("model.language_model.layers.4.eh_proj.weight"); }),
                  "layers.4.eh_proj.weight [96, 192]");
  const TestFolder folder;
  copy_golden("mtp", folder);
  std::string config = folder.read("config.json");
  replace(config, "\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 0");
  folder.write("config.json", config);
  EXPECT_MENTIONS(Checkpoint::open(folder.path()).error().message, "unexpected tensors (49)");
}

TEST(Checkpoint, AMatrixIsFp8ExactlyIfItHasAScale) {
  const std::string q_a = kLayer1 + "self_attn.q_a_proj.weight";  // [192, 256]
  EXPECT_MENTIONS(error_after("small-fp8", [&](LooseTensors& t) { t.erase(q_a + "_scale_inv"); }),
                  q_a + ": " + q_a + "_scale_inv is missing");
  EXPECT_EQ(error_after("small-fp8",
                        [&](LooseTensors& t) {
                          t.erase(q_a + "_scale_inv");
                          t[q_a] = {"BF16", {192, 256}, std::string(192 * 256 * 2, '\0')};
                        }),
            "");
  EXPECT_MENTIONS(error_after("small-fp8",
                              [&](LooseTensors& t) {
                                t[q_a] = {"BF16", {192, 256}, std::string(192 * 256 * 2, '\0')};
                              }),
                  "scales without FP8 matrix");
  EXPECT_MENTIONS(error_after("small-fp8",
                              [&](LooseTensors& t) {
                                t[q_a + "_scale_inv"] = {"F32", {1, 2}, std::string(8, '\1')};
                              }),
                  "_scale_inv is [1, 2], [2, 2] is expected");
  EXPECT_MENTIONS(error_after("small-fp8",
                              [&](LooseTensors& t) {
                                t[q_a + "_scale_inv"] = {"BF16", {2, 2}, std::string(8, '\1')};
                              }),
                  "_scale_inv is BF16, F32 is expected");
  EXPECT_MENTIONS(error_after("small-fp8",
                              [&](LooseTensors& t) {
                                t[q_a + "_scale_inv"] = {"F16", {2, 2}, std::string(8, '\1')};
                              }),
                  "_scale_inv is F16");
  // What is no quantisable matrix has neither FP8 data nor a scale.
  const std::string kv_b = kLayer1 + "self_attn.kv_b_proj.weight";
  EXPECT_MENTIONS(error_after("small-fp8",
                              [&](LooseTensors& t) {
                                t[kv_b].dtype = "F8_E4M3";
                                t[kv_b].bytes.resize(t[kv_b].bytes.size() / 2);
                                t[kv_b + "_scale_inv"] = {"F32", {4, 1}, std::string(16, '\1')};
                              }),
                  "kv_b_proj.weight is F8_E4M3, BF16 or F32 is expected");
}

TEST(Checkpoint, ReportsBadScalesWithTheirFirstPlace) {
  const std::string scale = kLayer1 + "self_attn.q_a_proj.weight_scale_inv";  // [2, 2]
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0.0F, -1.0F})
    EXPECT_MENTIONS(error_after("small-fp8", [&](LooseTensors& t) { t[scale].bytes.replace(8, 8, bytes_of(bad) + bytes_of(bad)); }),
                    scale + "[1, 0] is ");
}

TEST(Checkpoint, AScaleMayLieInAnotherShard) {
  const TestFolder folder;
  fs::copy_file(kGolden + "small-fp8/config.json", folder.path() / "config.json");
  LooseTensors weights = read_tensors(kGolden + "small-fp8");
  LooseTensors scales;
  std::string map;
  for (auto it = weights.begin(); it != weights.end();) {
    const bool scale = it->first.ends_with("_scale_inv");
    map += fmt::format("{}\"{}\":\"{}.safetensors\"", map.empty() ? "" : ",", it->first, scale ? "b" : "a");
    if (scale) scales.insert(*it);
    it = scale ? weights.erase(it) : std::next(it);
  }
  folder.write("a.safetensors", to_safetensors(weights));
  folder.write("b.safetensors", to_safetensors(scales));
  folder.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const auto c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->shard_count(), 2);
}

TEST(Checkpoint, ReportsIndexAndShardsThatDisagree) {
  const TestFolder folder;
  copy_golden("small-fp8", folder);
  const std::string index = folder.read("model.safetensors.index.json");
  const auto error_with = [&](const std::string& from, const std::string& to) {
    std::string changed = index;
    replace(changed, from, to);
    folder.write("model.safetensors.index.json", changed);
    const auto c = Checkpoint::open(folder.path());
    return c.ok() ? std::string() : c.error().message;
  };
  EXPECT_MENTIONS(error_with("\"lm_head.weight\": \"model-00002-of-00002", "\"lm_head.weight\": \"model-00001-of-00002"),
                  "lm_head.weight is in model-00002-of-00002.safetensors, the index says model-00001-of-00002.safetensors");
  EXPECT_MENTIONS(error_with("\"lm_head.weight\": ", "\"lm_head.more\": "),
                  "lm_head.weight is in model-00002-of-00002.safetensors, which the index does not say");
  EXPECT_MENTIONS(error_with("\"lm_head.weight\": ", "\"lm_head.more\": "), "lm_head.more is not in model-00002-of-00002.safetensors");
  EXPECT_MENTIONS(error_with("model-00002-of-00002", "model-00003-of-00002"), "model-00003-of-00002.safetensors: No such file");
  EXPECT_MENTIONS(error_with("\"model-00002-of-00002.safetensors\"", "\"../secret\""), "the name of a file beside the index");
  EXPECT_MENTIONS(error_with("\"model-00002-of-00002.safetensors\"", "7"), "maps to 7");
  EXPECT_MENTIONS(error_with("weight_map", "weights"), "weight_map");
  EXPECT_MENTIONS(error_with("{", "["), "not valid JSON");
  EXPECT_EQ(error_with("{", "{"), "");
}

TEST(Checkpoint, ReportsFilesThatAreMissingOrDamaged) {
  const TestFolder folder;
  copy_golden("small-fp8", folder);
  const fs::path second = folder.path() / "model-00002-of-00002.safetensors";
  const auto error = [&] { return Checkpoint::open(folder.path()).error().message; };
  fs::resize_file(second, fs::file_size(second) - 1);
  EXPECT_MENTIONS(error(), second.string());
  EXPECT_MENTIONS(error(), "truncated");
  EXPECT_EQ(error().find("missing tensors"), std::string::npos);
  fs::resize_file(second, 100);
  EXPECT_MENTIONS(error(), "truncated");
  fs::resize_file(second, 0);
  EXPECT_MENTIONS(error(), "0 bytes");
  fs::remove(second);
  EXPECT_MENTIONS(error(), second.string() + ": No such file");
  fs::create_directory(second);
  EXPECT_MENTIONS(error(), second.string() + " is a directory");
  fs::remove(folder.path() / "model.safetensors.index.json");
  EXPECT_MENTIONS(error(), "neither model.safetensors nor model.safetensors.index.json");
  fs::copy_file(kGolden + "small-fp8/model.safetensors.index.json", folder.path() / "model.safetensors.index.json");
  folder.write("model.safetensors", "");
  EXPECT_MENTIONS(error(), "holds both");
}

TEST(Checkpoint, ReportsFilesThatMayNotBeRead) {
  const TestFolder folder;
  copy_golden("tiny", folder);
  ::chmod((folder.path() / "model.safetensors").c_str(), 0);
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "root may read everything";
  const auto checkpoint = Checkpoint::open(folder.path());
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_MENTIONS(checkpoint.error().message, (folder.path() / "model.safetensors").string() + ": Permission denied");
}

}  // namespace
}  // namespace baton::model
