#include "model/config.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "model/test_folder.h"

namespace baton::model {
namespace {

namespace json = boost::json;

json::object golden() { return json::parse(*read_file(BATON_TEST_DATA "/golden/tiny/config.json", 1 << 20)).as_object(); }
Result<Config> parse(const json::object& root) { return parse_config(json::serialize(root), "config.json"); }

// The error after one change to text_config.
std::string error_of(const std::function<void(json::object&)>& change) {
  json::object root = golden();
  change(root["text_config"].as_object());
  const Result<Config> config = parse(root);
  return config.ok() ? "" : config.error().message;
}
std::string error_with(const std::string& key, const json::value& value) {
  return error_of([&](json::object& text) { text[key] = value; });
}

#define EXPECT_MENTIONS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Config, ReadsGoldenFolders) {
  const auto tiny = load_config(BATON_TEST_DATA "/golden/tiny");
  ASSERT_TRUE(tiny.ok()) << tiny.error().message;
  EXPECT_EQ(tiny->layer_count(), 5);
  EXPECT_EQ(tiny->layers[1].attention, AttentionKind::kSparse);
  EXPECT_EQ(tiny->layers[2].attention, AttentionKind::kKda);
  EXPECT_EQ(tiny->layers[0].mlp, MlpKind::kDense);
  EXPECT_EQ(tiny->layers[4].mlp, MlpKind::kMoe);
  EXPECT_EQ(tiny->mtp_layers, 0);
  EXPECT_EQ(tiny->kda_width(), 64);
  EXPECT_EQ(tiny->topk_pools(), 16);
  EXPECT_EQ(tiny->experts_per_token, 3);
  EXPECT_EQ(tiny->routed_scaling_factor, 2.5);
  EXPECT_EQ(tiny->rms_norm_eps, 1e-5);
  EXPECT_TRUE(tiny->eos_token_ids.empty());
  for (const char* name : {"small-bf16", "small-fp8", "mtp"}) {
    const auto config = load_config(std::string(BATON_TEST_DATA "/golden/") + name);
    EXPECT_TRUE(config.ok()) << config.error().message;
  }
  EXPECT_EQ(load_config(BATON_TEST_DATA "/golden/mtp")->mtp_layers, 1);
}

TEST(Config, ReadsTheReleasedConfiguration) {
  const auto c = parse_config(*read_file(BATON_TEST_DATA "/configs/glm-5.3-flash.json", 1 << 20), "glm-5.3-flash.json");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->layer_count(), 45);
  EXPECT_EQ(c->mtp_layers, 1);
  EXPECT_EQ(c->experts, 288);
  EXPECT_EQ(c->eos_token_ids, (std::vector<int32_t>{154820, 154827, 154829}));
  EXPECT_TRUE(c->index_share_for_mtp);
}

TEST(Config, AcceptsABareTextConfig) {
  const json::object text = golden()["text_config"].as_object();
  EXPECT_TRUE(parse(text).ok());
  json::object root = golden();
  root["text_config"].as_object()["model_type"] = "glm5_next";
  EXPECT_TRUE(parse(root).ok());
}

TEST(Config, RefusesOtherArchitectures) {
  json::object root = golden();
  root["model_type"] = "llama";
  const auto other = parse(root);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().kind, Error::Kind::kUnsupported);
  EXPECT_MENTIONS(other.error().message, "model_type is \"llama\"");
  EXPECT_MENTIONS(other.error().message, "glm5_next");
  EXPECT_MENTIONS(error_with("model_type", "glm4_moe"), "text_config.model_type");
  root = golden();
  root.erase("text_config");
  EXPECT_MENTIONS(parse(root).error().message, "text_config");
  root = golden();
  root.erase("model_type");
  EXPECT_MENTIONS(parse(root).error().message, "model_type");
  root = golden();
  root["text_config"] = 3;
  EXPECT_MENTIONS(parse(root).error().message, "text_config is 3");
}

TEST(Config, RefusesUnsupportedSettings) {
  EXPECT_MENTIONS(error_with("qk_rope_head_dim", 64), "text_config.qk_rope_head_dim is 64: only 0");
  EXPECT_MENTIONS(error_with("scoring_func", "softmax"), "scoring_func is \"softmax\": only sigmoid");
  EXPECT_MENTIONS(error_with("n_group", 8), "n_group");
  EXPECT_MENTIONS(error_with("topk_group", 4), "topk_group");
  EXPECT_MENTIONS(error_with("topk_method", "greedy"), "topk_method");
  EXPECT_MENTIONS(error_with("hidden_act", "gelu"), "hidden_act");
  EXPECT_MENTIONS(error_with("attention_bias", true), "attention_bias");
  EXPECT_MENTIONS(error_with("mhc", false), "mhc");
  EXPECT_MENTIONS(error_with("mla_use_nope", false), "mla_use_nope");
  EXPECT_MENTIONS(error_with("index_kpool_compress", false), "index_kpool_compress");
  EXPECT_MENTIONS(error_with("index_kpool_always_select_tail", false), "index_kpool_always_select_tail");
  EXPECT_MENTIONS(error_with("indexer_types", json::array{"full", "shared", "full", "full", "full"}), "indexer_types");
  EXPECT_MENTIONS(error_with("num_nextn_predict_layers", 2), "num_nextn_predict_layers");
  EXPECT_MENTIONS(error_with("num_key_value_heads", 2), "num_key_value_heads");
  EXPECT_MENTIONS(error_with("qk_head_dim", 32), "qk_head_dim");
  const auto kda = [](const std::string& key, const json::value& value) {
    return error_of([&](json::object& text) { text["linear_attn_config"].as_object()[key] = value; });
  };
  EXPECT_MENTIONS(kda("short_conv_kernel_size", 3), "text_config.linear_attn_config.short_conv_kernel_size is 3: only 4");
  EXPECT_MENTIONS(kda("safe_gate", false), "safe_gate");
  EXPECT_MENTIONS(kda("gate_lower_bound", 1.0), "gate_lower_bound");
}

TEST(Config, RefusesImpossibleSizes) {
  for (const char* key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "hc_mult", "num_attention_heads", "q_lora_rank", "kv_lora_rank",
        "qk_nope_head_dim", "v_head_dim", "index_n_heads", "index_head_dim", "index_topk", "index_kpool", "intermediate_size",
        "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok", "max_position_embeddings", "hc_sinkhorn_iters"}) {
    for (const json::value& bad : {json::value(0), json::value(-1), json::value(1.5), json::value("8"), json::value(int64_t{1} << 62),
                                   json::value(~uint64_t{0}), json::value(true), json::value(json::array{1})})
      EXPECT_MENTIONS(error_with(key, bad), fmt::format("text_config.{} is ", key));
    EXPECT_MENTIONS(error_of([&](json::object& text) { text.erase(key); }), fmt::format("text_config.{}: ", key));
    EXPECT_MENTIONS(error_with(key, nullptr), fmt::format("text_config.{}: ", key));
  }
  EXPECT_MENTIONS(error_with("num_experts_per_tok", 9), "num_experts_per_tok 9 exceeds n_routed_experts 8");
  EXPECT_MENTIONS(error_with("index_topk", 66), "index_topk 66 is no multiple of index_kpool 4");
  EXPECT_MENTIONS(error_with("index_topk", 2), "index_topk");
  EXPECT_MENTIONS(error_with("index_kpool", 3), "must divide 64");
  EXPECT_MENTIONS(error_with("layer_types", json::array{"linear_attention"}), "layer_types has 1 entries, num_hidden_layers is 5");
  EXPECT_MENTIONS(error_with("layer_types", "all"), "layer_types");
  EXPECT_MENTIONS(error_of([](json::object& text) { text["layer_types"].as_array()[2] = "mamba"; }), "layer_types[2] is \"mamba\"");
  EXPECT_MENTIONS(error_of([](json::object& text) { text["mlp_layer_types"].as_array()[1] = 1; }), "mlp_layer_types[1]");
  EXPECT_MENTIONS(error_with("num_hidden_layers", 6), "num_hidden_layers is 6");
  for (const char* key : {"rms_norm_eps", "hc_eps", "swiglu_limit"})
    for (const json::value& bad : {json::value(0), json::value(-1e-5), json::value("x")}) EXPECT_MENTIONS(error_with(key, bad), key);
}

TEST(Config, RefusesSizesWhoseProductsOverflow) {
  EXPECT_MENTIONS(error_of([](json::object& text) {
                    text["vocab_size"] = 2147483647;
                    text["hidden_size"] = 2147483647;
                  }),
                  "impossible sizes");
  EXPECT_MENTIONS(error_of([](json::object& text) {
                    text["num_attention_heads"] = 2147483647;
                    text["num_key_value_heads"] = 2147483647;
                  }),
                  "impossible sizes");
  EXPECT_MENTIONS(error_of([](json::object& text) {
                    text["linear_attn_config"].as_object()["num_heads"] = 2147483647;
                    text["linear_attn_config"].as_object()["head_dim"] = 2147483647;
                  }),
                  "impossible sizes");
  EXPECT_MENTIONS(error_of([](json::object& text) {
                    text["n_shared_experts"] = 65536;
                    text["moe_intermediate_size"] = 2147483647;
                  }),
                  "impossible sizes");
}

TEST(Config, ReportsAllProblemsTogether) {
  const std::string message = error_of([](json::object& text) {
    text["hidden_size"] = -3;
    text["scoring_func"] = "softmax";
    text.erase("vocab_size");
    text["index_kpool"] = 5;
  });
  for (const char* part : {"hidden_size is -3", "scoring_func", "vocab_size", "index_kpool is 5"}) EXPECT_MENTIONS(message, part);
}

TEST(Config, AcceptsWhatIsOptional) {
  EXPECT_EQ(error_with("n_shared_experts", 0), "");
  EXPECT_EQ(error_with("n_shared_experts", 3), "");
  EXPECT_EQ(error_with("swiglu_limit", 10), "");  // a whole number where a real one is meant
  EXPECT_EQ(error_of([](json::object& text) {
              for (const char* key : {"n_group", "topk_group", "scoring_func", "hidden_act", "num_nextn_predict_layers", "eos_token_id",
                                      "qk_head_dim", "mhc", "indexer_types", "mlp_layer_types"})
                text.erase(key);
            }),
            "");
  json::object root = golden();
  root["text_config"].as_object().erase("tie_word_embeddings");
  root["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(root)->tie_word_embeddings);
}

TEST(Config, ReadsEndTokens) {
  const auto ids = [](const json::value& value) {
    json::object root = golden();
    root["text_config"].as_object()["eos_token_id"] = value;
    return parse(root)->eos_token_ids;
  };
  EXPECT_EQ(ids(nullptr), std::vector<int32_t>{});
  EXPECT_EQ(ids(7), std::vector<int32_t>{7});
  EXPECT_EQ(ids(json::array{7, 319}), (std::vector<int32_t>{7, 319}));
  EXPECT_MENTIONS(error_with("eos_token_id", 320), "eos_token_id is 320");
  EXPECT_MENTIONS(error_with("eos_token_id", json::array{1, -1}), "eos_token_id");
  EXPECT_MENTIONS(error_with("eos_token_id", "x"), "eos_token_id");

  const TestFolder folder;
  folder.write("config.json", json::serialize(golden()));
  folder.write("generation_config.json", R"({"eos_token_id": [3, 4], "temperature": 1.0})");
  EXPECT_EQ(load_config(folder.path())->eos_token_ids, (std::vector<int32_t>{3, 4}));
  folder.write("generation_config.json", R"({"temperature": 1.0})");
  EXPECT_TRUE(load_config(folder.path())->eos_token_ids.empty());
  folder.write("generation_config.json", R"({"eos_token_id": 900})");
  EXPECT_MENTIONS(load_config(folder.path()).error().message, "generation_config.json");
  folder.write("generation_config.json", "{");
  EXPECT_MENTIONS(load_config(folder.path()).error().message, "generation_config.json");
}

TEST(Config, ChecksQuantization) {
  const auto error_quantized = [](const json::object& q) {
    json::object root = golden();
    root["quantization_config"] = q;
    const auto config = parse(root);
    return config.ok() ? "" : config.error().message;
  };
  EXPECT_EQ(
      error_quantized({{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}}), "");
  EXPECT_MENTIONS(error_quantized({{"quant_method", "gptq"}}), "quantization_config.quant_method is \"gptq\"");
  EXPECT_MENTIONS(error_quantized({{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}}), "weight_block_size");
  EXPECT_MENTIONS(error_quantized({{"quant_method", "fp8"}, {"activation_scheme", "static"}}), "activation_scheme");
  EXPECT_MENTIONS(error_quantized({}), "quant_method");
}

TEST(Config, RefusesWhatIsNoJsonObject) {
  for (const char* text : {"", "[]", "3", "{", "{\"a\":}", "{} {}", "nonsense", "{\"a\":1e9999}"})
    EXPECT_FALSE(parse_config(text, "x").ok()) << text;
  EXPECT_FALSE(parse_config(std::string(100'000, '['), "x").ok());
  EXPECT_FALSE(parse_config("{\"a\":" + std::string(100'000, '['), "x").ok());
  EXPECT_MENTIONS(parse_config("{\"a\" 1}", "folder/config.json").error().message, "folder/config.json");
}

TEST(Config, NamesTheFolderThatIsMissing) {
  const auto absent = load_config("/nowhere/model");
  EXPECT_EQ(absent.error().kind, Error::Kind::kNotFound);
  EXPECT_MENTIONS(absent.error().message, "/nowhere/model");
  EXPECT_MENTIONS(load_config(BATON_TEST_DATA "/golden/tiny/config.json").error().message, "is a file");
  const TestFolder folder;
  EXPECT_MENTIONS(load_config(folder.path()).error().message, "config.json");
  std::filesystem::create_directory(folder.path() / "config.json");
  EXPECT_FALSE(load_config(folder.path()).ok());
}

}  // namespace
}  // namespace baton::model
