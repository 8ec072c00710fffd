// Folders of drafters: what is read, and that what is wrong is named.
#include "model/dflash2_checkpoint.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "model/test_folder.h"

namespace baton::model {
namespace {

namespace json = boost::json;

const std::string kDrafter = BATON_TEST_DATA "/drafters/dflash2";
const std::string kTarget = BATON_TEST_DATA "/golden/mtp";

#define EXPECT_MENTIONS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

json::object stored() { return json::parse(*read_file(kDrafter + "/config.json", 1 << 20)).as_object(); }
Result<DFlash2Config> parse(const json::object& root) { return parse_dflash2_config(json::serialize(root), "config.json"); }
std::string error_with(const std::string& key, const json::value& value) {
  json::object root = stored();
  root[key] = value;
  const Result<DFlash2Config> config = parse(root);
  return config.ok() ? "" : config.error().message;
}

TEST(DFlash2Config, ReadsSettingsAtTheTop) {
  const auto c = load_dflash2_config(kDrafter);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->drafts(), 7);
  EXPECT_EQ(c->target_layers, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(c->window, 40);
  EXPECT_EQ(c->mask_token_id, 255);
  EXPECT_EQ(c->conv_groups(), 6);
  EXPECT_EQ(c->feature_width(), 3 * 96);
  EXPECT_EQ(c->rope_theta, 10000);
  EXPECT_TRUE(is_dflash2_folder(kDrafter));
  EXPECT_FALSE(is_dflash2_folder(kTarget));
  EXPECT_FALSE(is_dflash2_folder("/nowhere"));
}

TEST(DFlash2Config, ReadsReleasedNesting) {
  json::object root = stored();
  json::object inner;
  for (const char* key :
       {"block_size", "target_layer_ids", "mask_token_id", "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}) {
    inner[key] = root.at(key);
    root.erase(key);
  }
  root["dflash_config"] = inner;
  root["model_type"] = "qwen3";
  root.erase("rope_theta");
  root["rope_parameters"] = {{"rope_theta", 1000000}, {"rope_type", "default"}};
  const auto c = parse(root);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->block_size, 8);
  EXPECT_EQ(c->target_layers, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(c->rope_theta, 1e6);
}

TEST(DFlash2Config, NamesWhatIsWrong) {
  EXPECT_MENTIONS(error_with("architectures", json::array{"DFlashDraftModel"}), "DFlash2DraftModel");
  EXPECT_MENTIONS(error_with("block_size", 1), "block_size is 1: a whole number from 2 to 16");
  EXPECT_MENTIONS(error_with("block_size", 17), "block_size is 17");
  EXPECT_MENTIONS(error_with("target_layer_ids", json::array{2, 1}), "target_layer_ids");
  EXPECT_MENTIONS(error_with("target_layer_ids", json::array{}), "target_layer_ids");
  EXPECT_MENTIONS(error_with("target_layer_ids", nullptr), "missing keys");
  EXPECT_MENTIONS(error_with("mask_token_id", 256), "mask_token_id is 256");
  EXPECT_MENTIONS(error_with("conv_kernel_size", 3), "conv_kernel_size is 3: only 2");
  EXPECT_MENTIONS(error_with("conv_group_size", 10), "hidden_size 96 is no multiple of conv_group_size 10");
  EXPECT_MENTIONS(error_with("num_key_value_heads", 3), "num_attention_heads 4 is no multiple");
  EXPECT_MENTIONS(error_with("head_dim", 15), "head_dim 15");
  EXPECT_MENTIONS(error_with("selector_top_k", 257), "selector_top_k is 257");
  EXPECT_MENTIONS(error_with("layer_types", json::array{"full_attention", "sliding_attention"}), "layer_types");
  EXPECT_MENTIONS(error_with("rope_scaling", json::object{{"factor", 2}}), "rope_scaling");
  EXPECT_MENTIONS(error_with("rope_parameters", json::object{{"rope_type", "yarn"}}), "rope_parameters.rope_type");
  EXPECT_MENTIONS(error_with("dflash_config", 1), "dflash_config");
  EXPECT_MENTIONS(error_with("is_causal", true), "is_causal");
  EXPECT_MENTIONS(error_with("hidden_size", int64_t{1} << 40), "hidden_size");
  json::object root = stored();
  for (const char* key : {"vocab_size", "sliding_window"}) root[key] = int64_t{1} << 24;
  root["selector_rank"] = 65'536;
  EXPECT_MENTIONS(parse(root).error().message, "a codebook");
  EXPECT_MENTIONS(parse_dflash2_config("{", "config.json").error().message, "JSON");
}

TEST(DFlash2Config, MustFitItsTarget) {
  const Config target = *load_config(kTarget);
  const DFlash2Config drafter = *load_dflash2_config(kDrafter);
  EXPECT_TRUE(check_dflash2_target(drafter, target, "d").ok());
  DFlash2Config other = drafter;
  other.vocab_size = 255;
  other.hidden_size = 64;
  other.target_layers = {0, 4};
  const Status status = check_dflash2_target(other, target, "the/folder");
  ASSERT_FALSE(status.ok());
  EXPECT_MENTIONS(status.error().message, "the/folder");
  EXPECT_MENTIONS(status.error().message, "vocab_size is 255, the target's is 256");
  EXPECT_MENTIONS(status.error().message, "hidden_size is 64, the target's is 96");
  EXPECT_MENTIONS(status.error().message, "names layer 4, the target has 4 (0 to 3)");
}

TEST(DFlash2Checkpoint, HoldsEveryTensor) {
  const auto c = DFlash2Checkpoint::open(kDrafter);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->set().tensors().size(), dflash2_tensors(c->config()).size());
  EXPECT_EQ(dflash2_tensors(c->config()).size(), 6U + 2U * 15U);
  ASSERT_NE(c->set().find("layers.1.mlp_conv.base_kernel"), nullptr);
}

TEST(DFlash2Checkpoint, NamesTensorsThatAreWrong) {
  const auto error_after = [](const std::function<void(LooseTensors&)>& change) {
    const TestFolder folder;
    std::filesystem::copy_file(kDrafter + "/config.json", folder.path() / "config.json");
    LooseTensors tensors = read_tensors(kDrafter);
    change(tensors);
    folder.write("model.safetensors", to_safetensors(tensors));
    const auto c = DFlash2Checkpoint::open(folder.path());
    return c.ok() ? std::string() : c.error().message;
  };
  EXPECT_EQ(error_after([](LooseTensors&) {}), "");
  EXPECT_MENTIONS(error_after([](LooseTensors& t) { t.erase("fc.weight"); }), "missing tensors (1):\n    fc.weight [96, 288]");
  EXPECT_MENTIONS(error_after([](LooseTensors& t) { t["lm_head.weight"] = t["fc.weight"]; }), "unexpected tensors");
  EXPECT_MENTIONS(error_after([](LooseTensors& t) { t["fc.weight"].shape = {288, 96}; }), "fc.weight is [288, 96], [96, 288] is expected");
  EXPECT_MENTIONS(error_after([](LooseTensors& t) {
                    LooseTensor& norm = t["norm.weight"];
                    norm.dtype = "F8_E4M3";
                    norm.bytes.resize(norm.bytes.size() / 2);
                  }),
                  "norm.weight is F8_E4M3, BF16 or F32 is expected");
  EXPECT_MENTIONS(error_after([](LooseTensors& t) {
                    LooseTensor& norm = t["norm.weight"];
                    norm.dtype = "I16";
                  }),
                  "norm.weight is I16, BF16 or F32 is expected");
}

}  // namespace
}  // namespace baton::model
