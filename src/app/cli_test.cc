// The program as a user meets it: exit codes, messages, files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "model/test_folder.h"

extern char** environ;

namespace baton {
namespace {

namespace fs = std::filesystem;
using model::TestFolder;

const std::string kGolden = BATON_TEST_DATA "/golden/";

struct Outcome {
  int exit_code = -1;  // 128 + signal if killed
  std::string out;
  std::string err;
};

class CommandLine : public testing::Test {
 protected:
  // Starts the program; finish() waits for it.
  pid_t start(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {BATON_PROGRAM};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& a : all) argv.push_back(a.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, (folder_.path() / ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (folder_.path() / ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, BATON_PROGRAM, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }
  Outcome finish(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    Outcome o;
    o.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    o.out = folder_.read(".out");
    o.err = folder_.read(".err");
    return o;
  }
  Outcome run(const std::vector<std::string>& arguments) { return finish(start(arguments)); }

  // A failure: exit code 1, nothing on standard output, one message that mentions all `parts`.
  void expect_failure(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.exit_code, 1);
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(o.err.starts_with("baton: ")) << o.err;
    EXPECT_EQ(o.err.find("baton: ", 1), std::string::npos) << o.err;
    for (const std::string& part : parts) EXPECT_NE(o.err.find(part), std::string::npos) << part << " in " << o.err;
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (const std::string name = entry.path().filename().string(); name != ".out" && name != ".err") names.push_back(name);
    return names;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  TestFolder folder_;
};

TEST_F(CommandLine, SaysWhatItIs) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("baton ")) << version.out;
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"bench", "eval", "generate", "inspect", "render", "simulate", "synth", "tokenize"}) {
    EXPECT_NE(help.out.find(command), std::string::npos);
    EXPECT_EQ(run({command, "--help"}).exit_code, 0);
  }
}

TEST_F(CommandLine, TokenizesBothWays) {
  const std::string tokenizer = BATON_TEST_DATA "/tokenizers/glm-like.json";
  const std::string text = "Hello <think> w\xC3\xB6rld\n";
  const Outcome ids = run({"tokenize", "--tokenizer", tokenizer, "--text", text});
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_NE(ids.out.find(",12021,"), std::string::npos) << ids.out;
  EXPECT_EQ(run({"tokenize", "--tokenizer", tokenizer, "--decode", "--text", ids.out}).out, text);
  EXPECT_EQ(run({"tokenize", "--tokenizer", tokenizer, "--no-special", "--text", text}).out.find(",12021,"), std::string::npos);
  EXPECT_EQ(run({"tokenize", "--tokenizer", tokenizer, "--decode", "--json", "--text", "39,276"}).out, "{\"text\":\"Hel\"}\n");
  expect_failure({"tokenize", "--tokenizer", path("none"), "--text", "x"}, {"none"});
  EXPECT_EQ(run({"tokenize", "--text", "x"}).exit_code, 2);
  // A pipe in a model's folder is an error, not a wait.
  ASSERT_EQ(mkfifo(path("tokenizer.json").c_str(), 0600), 0);
  expect_failure({"tokenize", "--tokenizer", folder_.path().string(), "--text", "a"}, {"tokenizer.json", "regular file"});
}

TEST_F(CommandLine, RendersConversations) {
  folder_.write("chat_template.jinja",
                "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|><think>{{ "
                "mode }}{% endif %}");
  fs::copy(BATON_TEST_DATA "/tokenizers/glm-like.json", path("tokenizer.json"));
  folder_.write("chat.json", R"({"messages": [{"role": "user", "content": "a <|user|>"}], "chat_template_kwargs": {"mode": "x"}})");
  const std::string model = folder_.path().string();
  const Outcome text = run({"render", "--model", model, "--system", "S", "--user", "hi", "--option", "mode=1"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out, "<|system|>S<|user|>hi<|assistant|><think>1");
  EXPECT_EQ(run({"render", "--model", model, "--messages", path("chat.json"), "--show-origins"}).out,
            "<|user|>\u27E6a <|user|>\u27E7<|assistant|><think>\u27E6x\u27E7");
  EXPECT_EQ(run({"render", "--model", model, "--messages", path("chat.json"), "--no-generation-prompt", "--json"}).out,
            "{\"text\":\"<|user|>a <|user|>\",\"untrusted\":[[8,18]]}\n");
  EXPECT_EQ(run({"render", "--model", model, "--user", "<|user|>", "--continue-final-message"}).out, "<|user|><|user|>");
  const auto count = [](const std::string& ids, const std::string& id) {
    size_t n = 0;
    for (size_t at = 0; (at = ids.find(id, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count(run({"render", "--model", model, "--messages", path("chat.json"), "--ids"}).out, "12007"), 1U);
  EXPECT_EQ(count(run({"render", "--model", model, "--messages", path("chat.json"), "--ids", "--trust-everything"}).out, "12007"), 2U);
  folder_.write("image.json", R"([{"role": "user", "content": [{"type": "image_url"}]}])");
  expect_failure({"render", "--model", model, "--messages", path("image.json")}, {"messages[0].content[0].type", "image_url"});
  folder_.write("broken.json", "[{");
  expect_failure({"render", "--model", model, "--messages", path("broken.json")}, {"broken.json", "JSON"});
  expect_failure({"render", "--model", model, "--messages", path("none.json")}, {"none.json"});
  for (const std::string field : {"add_generation_prompt", "continue_final_message", "chat_template_kwargs"}) {
    folder_.write("odd.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"" + field + "\": \"false\"}");
    expect_failure({"render", "--model", model, "--messages", path("odd.json")}, {"odd.json", field});
  }
  // Arguments that are no UTF-8.
  EXPECT_EQ(run({"render", "--model", model, "--user", "a\xF0", "--option", "mode=\xE2\x82", "--json"}).out,
            "{\"text\":\"<|user|>a\uFFFD<|assistant|><think>\uFFFD\",\"untrusted\":[[8,12],[32,35]]}\n");
  expect_failure({"render", "--model", path("nowhere"), "--user", "x"}, {"nowhere", "chat_template.jinja"});
  expect_failure({"render", "--model", model, "--user", "x", "--option", "mode"}, {"--option mode"});
  expect_failure({"render", "--model", model, "--user", "x", "--option", "messages=1"}, {"chat_template_kwargs.messages"});
  folder_.write("chat_template.jinja", "a\n{% nonsense %}");
  expect_failure({"render", "--model", model, "--user", "x"}, {"chat_template.jinja", "line 2", "nonsense"});
  EXPECT_EQ(run({"render", "--model", model}).exit_code, 2);
  EXPECT_EQ(run({"render", "--model", model, "--user", "x", "--messages", "y"}).exit_code, 2);
}

TEST_F(CommandLine, UsageErrorsExitWithTwo) {
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"unknown"},
                                                       {"inspect"},
                                                       {"inspect", "--what", "x"},
                                                       {"inspect", "a", "b"},
                                                       {"synth", "x"},
                                                       {"synth", "--config", "c", "--seed", "x", "out"},
                                                       {"synth", "--config", "c", "--seed", "1", "--format", "int4", "out"},
                                                       {"synth", "--config", "c", "--seed", "1", "--shards", "0", "out"}};
  for (const auto& arguments : wrong) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.exit_code, 2);
    EXPECT_EQ(o.out, "");
    EXPECT_NE(o.err, "");
  }
}

TEST_F(CommandLine, InspectsAsTextAndAsJson) {
  const Outcome text = run({"inspect", kGolden + "mtp"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.err, "");
  EXPECT_NE(text.out.find("routed experts"), std::string::npos);
  const Outcome json = run({"inspect", "--json", kGolden + "mtp"});
  EXPECT_EQ(json.exit_code, 0);
  const boost::json::value report = boost::json::parse(json.out);
  EXPECT_EQ(report.at("architecture").at("layers").as_int64(), 4);
  EXPECT_EQ(report.at("weights").at("parts").at("total").at("parameters").as_int64(), 960'737);
  EXPECT_EQ(report.at("gpus").at("layouts").as_array().size(), 4U);
  EXPECT_EQ(report.at("cache").at("per_token").at("latent_bf16").at("mtp").as_int64(), 96);
}

TEST_F(CommandLine, InspectsADrafter) {
  const std::string drafter = BATON_TEST_DATA "/drafters/dflash2";
  const Outcome text = run({"inspect", drafter});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("7 drafts a pass"), std::string::npos) << text.out;
  const boost::json::value report = boost::json::parse(run({"inspect", "--json", drafter}).out);
  EXPECT_EQ(report.at("architecture").at("target_layer_ids"), boost::json::value({0, 2, 3}));
  EXPECT_EQ(report.at("cache_per_request").at("window_bf16").as_int64(), 2 * 40 * 2 * 2 * 16 * 2);
}

TEST_F(CommandLine, SynthesisesWhatInspectAccepts) {
  const Outcome made =
      run({"synth", "--config", kGolden + "small-fp8/config.json", "--seed", "1", "--format", "fp8", "--shards", "2", path("out")});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(entries(), std::vector<std::string>{"out"});
  EXPECT_EQ(run({"inspect", path("out")}).exit_code, 0);
  expect_failure({"synth", "--config", kGolden + "tiny/config.json", "--seed", "1", path("out")}, {path("out"), "not empty"});
}

TEST_F(CommandLine, SynthLeavesNothingBehind) {
  expect_failure({"synth", "--config", path("absent.json"), "--seed", "1", path("out")}, {path("absent.json"), "No such file"});
  expect_failure({"synth", "--config", kGolden, "--seed", "1", path("out")}, {kGolden, "directory"});
  folder_.write("llama.json", R"({"model_type": "llama"})");
  expect_failure({"synth", "--config", path("llama.json"), "--seed", "1", path("out")}, {path("llama.json"), "llama", "glm5_next"});
  fs::remove(path("llama.json"));
  EXPECT_TRUE(entries().empty());
}

TEST_F(CommandLine, SynthStopsCleanlyWhenInterrupted) {
  // A slim form of the released model still takes far longer than this test waits.
  boost::json::value config = boost::json::parse(*read_file(BATON_TEST_DATA "/configs/glm-5.3-flash.json", 1 << 20));
  config.at("text_config").as_object()["n_routed_experts"] = 8;
  config.at("text_config").as_object()["hidden_size"] = 1024;
  folder_.write("config.json", boost::json::serialize(config));
  const pid_t pid = start({"synth", "--config", path("config.json"), "--seed", "1", "--format", "fp8", path("out")});
  for (int i = 0; i < 2000 && entries().size() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(pid, SIGINT);
  const Outcome o = finish(pid);
  EXPECT_EQ(o.exit_code, 1) << o.err;
  EXPECT_EQ(entries(), std::vector<std::string>{"config.json"});
}

TEST_F(CommandLine, NamesBadInput) {
  expect_failure({"inspect", path("absent")}, {path("absent")});
  expect_failure({"inspect", path("")}, {"config.json", "No such file"});
  folder_.write("config.json", "{\"model_type\": \"qwen3\"}");
  expect_failure({"inspect", path("")}, {"config.json", "qwen3", "glm5_next"});
  folder_.write("config.json", "{");
  expect_failure({"inspect", path("")}, {"config.json", "JSON"});
  fs::copy_file(kGolden + "tiny/config.json", path("config.json"), fs::copy_options::overwrite_existing);
  expect_failure({"inspect", path("")}, {"model.safetensors"});
  folder_.write("model.safetensors", folder_.read("config.json"));
  expect_failure({"inspect", path("")}, {"model.safetensors", "is it safetensors?"});
  fs::copy_file(kGolden + "tiny/model.safetensors", path("model.safetensors"), fs::copy_options::overwrite_existing);
  EXPECT_EQ(run({"inspect", path("")}).exit_code, 0);
  fs::resize_file(path("model.safetensors"), 1'000'000);
  expect_failure({"inspect", path("")}, {"model.safetensors", "truncated"});
}

TEST_F(CommandLine, PrefillAndDecodeApartGiveTheSameTokens) {
  std::string prompts;
  for (int i = 0; i < 5; ++i) {
    for (int t = 0; t < 70 + 30 * i; ++t) prompts += std::to_string(t % 100 + (t > 64 ? i : 0)) + " ";
    prompts += '\n';
  }
  folder_.write("prompts", prompts);
  const auto with = [this](std::vector<std::string> more) {
    std::vector<std::string> all = {"generate",     "--model", kGolden + "mtp", "--prompts", path("prompts"),
                                    "--max-tokens", "12",      "--dtype",       "float32"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  const Outcome together = with({}), apart = with({"--pd", "--speculative-algorithm", "NEXTN"});
  EXPECT_EQ(apart.exit_code, 0) << apart.err;
  EXPECT_EQ(apart.out, together.out);
  EXPECT_NE(apart.err.find("5 prompts handed over"), std::string::npos) << apart.err;
  EXPECT_NE(apart.err.find(", 0 by decode"), std::string::npos) << apart.err;
  const auto json =
      boost::json::parse(run({"generate", "--model", kGolden + "tiny", "--prompt-ids", "1,2,3", "--pd", "--format", "json"}).out);
  EXPECT_EQ(json.at("hand_over").at("prompt_rows_of_prefill").as_int64(), 3);
  EXPECT_EQ(json.at("hand_over").at("pages_moved").as_int64(), 1);
  expect_failure({"generate", "--model", kGolden + "tiny", "--prompt-ids", "1", "--pd", "--n", "2"}, {"--n is 2", "--pd"});
}

TEST_F(CommandLine, DraftsOnRequestAndSaysWhatCannotDraft) {
  const std::vector<std::string> plain = {"generate",     "--model", kGolden + "mtp", "--prompt-ids", "1,2,3",
                                          "--max-tokens", "40",      "--dtype",       "float32"};
  const auto with = [this, &plain](std::vector<std::string> more) {
    more.insert(more.begin(), plain.begin(), plain.end());
    return run(more);
  };
  EXPECT_EQ(with({"--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3"}).out, with({}).out);
  const std::string draft_model = BATON_TEST_DATA "/drafters/dflash2";
  EXPECT_EQ(with({"--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", draft_model}).out, with({}).out);
  const Outcome bench =
      run({"bench", "speculation", "--model", kGolden + "mtp", "--count", "2", "--max-tokens", "8", "--json", path("b.json")});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_NE(bench.out.find("NEXTN"), std::string::npos);
  const auto figures = boost::json::parse(folder_.read("b.json"));
  for (const auto& drafter : figures.at("drafters").as_array()) EXPECT_TRUE(drafter.at("same_tokens").as_bool());
  const std::vector<std::pair<std::vector<std::string>, const char*>> wrong = {
      {{"--speculative-num-steps", "3"}, "needs a --speculative-algorithm"},
      {{"--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-num-draft-tokens", "3"}, "or give 4"},
      {{"--speculative-algorithm", "NEXTN", "--speculative-draft-model-path", "x"}, "is for --speculative-algorithm DFLASH"},
      {{"--speculative-algorithm", "DFLASH"}, "needs --speculative-draft-model-path"},
      {{"--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", kGolden + "mtp"}, "DFlash2DraftModel"},
      {{"--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", draft_model, "--speculative-num-steps", "8"}, "has 7"}};
  for (const auto& [flags, message] : wrong) {
    const Outcome o = with(flags);
    EXPECT_EQ(o.exit_code, 1);
    EXPECT_NE(o.err.find(message), std::string::npos) << o.err;
  }
  const Outcome none = run({"generate", "--model", kGolden + "tiny", "--prompt-ids", "1", "--speculative-algorithm", "NEXTN"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("no MTP layer"), std::string::npos) << none.err;
}

TEST_F(CommandLine, BenchSpeculationRunsWhatIsAskedForOrNothing) {
  const std::string draft_model = BATON_TEST_DATA "/drafters/dflash2";
  const auto bench = [this](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"bench", "speculation",  "--model", kGolden + "mtp", "--count", "1",      "--prompt-tokens",
                                    "4",     "--max-tokens", "4",       "--dtype",       "float32", "--json", path("b.json")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto drafters = [&](const std::vector<std::string>& more) {
    const Outcome o = run(bench(more));
    EXPECT_EQ(o.exit_code, 0) << o.err;
    std::string names;
    const auto figures = boost::json::parse(folder_.read("b.json"));
    for (const auto& d : figures.at("drafters").as_array()) names += std::string(d.at("drafter").as_string()) + " ";
    return names;
  };
  const std::vector<std::string> dflash = {"--speculative-draft-model-path", draft_model};
  const auto beside = [&](std::vector<std::string> more) {
    more.insert(more.end(), dflash.begin(), dflash.end());
    return more;
  };
  EXPECT_EQ(drafters({}), "none NEXTN ");
  EXPECT_EQ(drafters(dflash), "none NEXTN DFLASH ");
  EXPECT_EQ(drafters({"--speculative-algorithm", "NEXTN"}), "none NEXTN ");
  EXPECT_EQ(drafters(beside({"--speculative-algorithm", "DFLASH", "--speculative-sampled-proposals"})), "none DFLASH DFLASH sampled ");

  expect_failure(bench({"--speculative-algorithm", "DFLASH"}), {"DFLASH needs --speculative-draft-model-path"});
  expect_failure(bench(beside({"--speculative-algorithm", "NEXTN"})), {"is for --speculative-algorithm DFLASH, not NEXTN"});
  expect_failure(bench(beside({"--speculative-num-steps", "9"})), {"9 drafts per cycle", "has 7"});
  expect_failure(bench({"--speculative-num-steps", "3", "--speculative-num-draft-tokens", "9"}), {"or give 4"});
  expect_failure(bench(beside({"--speculative-sampled-proposals", "--speculative-adaptive"})), {"exclude each other"});
  expect_failure(bench({"--speculative-sampled-proposals"}), {"needs --speculative-draft-model-path"});
  expect_failure({"bench", "speculation", "--model", kGolden + "tiny", "--speculative-num-steps", "3"},
                 {"needs a --speculative-algorithm"});
  folder_.write("prompts", "\n \n3 1000000\n");
  expect_failure(bench({"--prompts", path("prompts")}), {path("prompts") + ":3: 1000000 is no token of this model"});
}

TEST_F(CommandLine, PlansFromTheConfigurationAlone) {
  const std::string config = BATON_TEST_DATA "/configs/glm-5.3-flash.json";
  const Outcome o = run({"plan", config, "--shared", "99.9", "--concurrency", "128", "--json", "--plot", path("plan.svg")});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  const boost::json::value plan = boost::json::parse(o.out);
  EXPECT_EQ(plan.at("layouts").as_array().size(), 2U);
  EXPECT_EQ(plan.at("layouts").at(0).at("decode").at("point").at("requests").to_number<int>(), 128);
  EXPECT_TRUE(folder_.read("plan.svg").starts_with("<svg"));
  EXPECT_EQ(run({"plan", kGolden + "tiny"}).exit_code, 0) << "the context is what the model takes";
  EXPECT_EQ(run({"plan", config, "--gpu", "toaster"}).exit_code, 2);
  expect_failure({"plan", config, "--accepted", "9"}, {"--accepted 9", "at most 8"});
  expect_failure({"plan", config, "--drafts", "5"}, {"--drafts 5", "--accepted"});
  expect_failure({"plan", config, "--context", "90000000"}, {"--context 90000000", "1048576"});
  expect_failure({"plan", config, "--measured", config}, {config, "JSON"});
  folder_.write("results.jsonl", R"({"op": "kda_decode", "us": 10, "floor_us": 20})");
  expect_failure({"plan", config, "--measured", path("results.jsonl")}, {"line 1", "floor"});
}

TEST_F(CommandLine, SimulatesAClusterFromTheConfigurationAlone) {
  const std::string config = BATON_TEST_DATA "/configs/glm-5.3-flash.json";
  const std::vector<std::string> cluster = {"simulate", "--cluster", "--model", config};
  const auto with = [&cluster](std::vector<std::string> more) {
    more.insert(more.begin(), cluster.begin(), cluster.end());
    return more;
  };
  const Outcome o = run(with({"--prefill", "3", "--decode", "1", "--workload", "article-3p1d-50", "--num-prompts", "32", "--request-rate",
                              "1,2", "--slo", "article", "--json", path("runs.json"), "--html", path("page.html")}));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  const boost::json::value runs = boost::json::parse(folder_.read("runs.json")).at("runs");
  ASSERT_EQ(runs.as_array().size(), 2U);
  EXPECT_EQ(runs.at(0).at("completed").to_number<int>(), 32);
  EXPECT_EQ(runs.at(0).at("utilisation").at("prefill").at("instances").to_number<int>(), 3);
  EXPECT_GT(runs.at(1).at("mean_ttft_ms").to_number<double>(), 0);
  const std::string page = folder_.read("page.html");
  EXPECT_NE(page.find("Instances by use"), std::string::npos);
  EXPECT_NE(page.find("</html>"), std::string::npos);
  EXPECT_EQ(run({"simulate", "--prefill", "3"}).exit_code, 2) << "means nothing without --cluster";
  expect_failure({"simulate", "--cluster"}, {"--model", "--cost"});
  expect_failure(with({"--prefill", "3"}), {"--decode"});
  expect_failure(with({"--find-rate"}), {"--slo"});
  expect_failure(with({"--gpus", "1"}), {"--gpus"});
  expect_failure(with({"--request-rate", "fast"}), {"--request-rate fast"});
  folder_.write("cost.json", R"({"cycle_us": 5000, "prompt_row_us": 100, "decode_row_us": "x"})");
  expect_failure({"simulate", "--cluster", "--cost", path("cost.json")}, {"cost.json", "decode_row_us"});
  expect_failure({"simulate", "--cluster", "--calibrate", config}, {config, "bench serve"});
  expect_failure({"simulate", "--cluster", "--calibrate", path("runs.json"), "--hold-out", "3"}, {"--hold-out 3", "2 runs"});
}

// The largest sizes that the configuration accepts must run: a limit that only a kernel knows would end in a crash.
TEST_F(CommandLine, SaysThatThereIsNoCudaDevice) {
  const std::vector<std::string> arguments = {"generate", "--device", "cuda", "--model", kGolden + "tiny", "--prompt-ids", "1,2"};
  if (run(arguments).exit_code == 0) GTEST_SKIP() << "there is one";
  expect_failure(arguments, {"CUDA", "use the CPU"});
}

TEST_F(CommandLine, GeneratesAtTheLimitsOfTheConfiguration) {
  boost::json::value config = boost::json::parse(*read_file(kGolden + "tiny/config.json", 1 << 20));
  boost::json::object& text = config.at("text_config").as_object();
  const auto with = [&](const std::string& key, int64_t value, const std::string& name) {
    const boost::json::value before = text[key];
    text[key] = value;
    folder_.write(name + ".json", boost::json::serialize(config));
    text[key] = before;
    return run({"synth", "--config", path(name + ".json"), "--seed", "1", path(name)}).exit_code;
  };
  text["n_routed_experts"] = 70;
  for (const auto& [key, limit] : {std::pair<std::string, int64_t>{"hc_mult", 32}, {"num_experts_per_tok", 64}}) {
    EXPECT_EQ(with(key, limit + 1, "beyond"), 1) << key;
    ASSERT_EQ(with(key, limit, key), 0) << key;
    EXPECT_EQ(run({"generate", "--model", path(key), "--prompt-ids", "1,2,3", "--max-tokens", "2"}).exit_code, 0) << key;
  }
}

TEST_F(CommandLine, ManyPromptsGiveWhatEachGivesAlone) {
  const std::vector<std::string> common = {"generate", "--model", kGolden + "tiny", "--max-tokens", "20"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return run(more);
  };
  folder_.write("prompts", "1,2,3\n[4, 5, 6]\n\n7 8 9\n1,2,3,4\n");
  std::string alone;
  for (const char* ids : {"1,2,3", "4,5,6", "7,8,9", "1,2,3,4"}) alone += with({"--prompt-ids", ids}).out;
  const Outcome together = with({"--prompts", path("prompts")});
  EXPECT_EQ(together.exit_code, 0) << together.err;
  EXPECT_EQ(together.out, alone);
  EXPECT_EQ(with({"--prompts", path("prompts"), "--max-running", "2", "--chunk", "3"}).out, alone);
  EXPECT_EQ(with({"--prompts", path("prompts"), "--memory", "100000000", "--pool-tokens", "64"}).out, alone)
      << "one page: one after the other";
  const Outcome forked = with({"--prompt-ids", "1,2,3", "--n", "2"});
  const Outcome one = with({"--prompt-ids", "1,2,3"});
  EXPECT_EQ(forked.out, one.out + one.out) << "at temperature 0 all continuations are equal";

  folder_.write("bad", "1,2\n3,x\n");
  expect_failure({"generate", "--model", kGolden + "tiny", "--prompts", path("bad")}, {"bad:2", "'x'"});
  folder_.write("beyond", "1,2\n3,320\n");
  expect_failure({"generate", "--model", kGolden + "tiny", "--prompts", path("beyond")}, {"prompt 2", "320"});
  folder_.write("empty", "\n");
  expect_failure({"generate", "--model", kGolden + "tiny", "--prompts", path("empty")}, {"no prompt"});
  expect_failure({"generate", "--model", kGolden + "tiny", "--prompt-ids", "1", "--memory", "1000"}, {"--memory", "raise"});
  EXPECT_EQ(run({"generate", "--model", kGolden + "tiny", "--prompts", path("prompts"), "--prompt-ids", "1"}).exit_code, 2);
}

TEST_F(CommandLine, BenchEngineMeasuresAndWritesJson) {
  const Outcome o = run({"bench", "engine", "--model", kGolden + "tiny", "--batch", "1,2", "--prefix-share", "0", "--prompt-tokens", "20",
                         "--rounds", "1", "--host-requests", "8", "--json", path("figures.json")});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_NE(o.out.find("processor time"), std::string::npos) << o.out;
  const boost::json::value figures = boost::json::parse(folder_.read("figures.json"));
  EXPECT_EQ(figures.at("throughput").as_array().size(), 2U);
  EXPECT_GT(figures.at("host").at("cycles").as_int64(), 0);
  EXPECT_EQ(run({"bench"}).exit_code, 2);
  EXPECT_EQ(run({"bench", "engine"}).exit_code, 2);
  expect_failure({"bench", "engine", "--host-only", "--json", path("none/figures.json")}, {"none"});
  expect_failure({"bench", "cycle", "--model", kGolden + "tiny", "--graph"}, {"--graph", "--device cuda"});
  expect_failure({"bench", "engine", "--host-only", "--json", path("")}, {"not a regular file"});
  const std::vector<std::string> tiny = {"bench", "engine", "--model", kGolden + "tiny", "--rounds", "1", "--host-requests", "1"};
  const auto with = [&tiny](std::vector<std::string> more) {
    more.insert(more.begin(), tiny.begin(), tiny.end());
    return more;
  };
  expect_failure(with({"--prompt-tokens", "100000"}), {"--prompt-tokens plus --max-tokens 100128", "8192 positions"});
  expect_failure(with({"--batch", "4096", "--memory", "100000000"}), {"--batch 4096", "lower --batch to"});
}

// More requests than an engine lets wait, or takes messages for, unless it is told.
TEST_F(CommandLine, ManyRequestsAtOnceAreAllTaken) {
  const Outcome bench = run({"bench", "engine", "--model", kGolden + "tiny", "--rounds", "1", "--host-requests", "1", "--batch", "1100",
                             "--prefix-share", "0", "--prompt-tokens", "1", "--max-tokens", "12", "--chunk", "2048"});
  EXPECT_TRUE(bench.exit_code == 0 || bench.err.find("hardly ever decode all at once") != std::string::npos) << bench.err;
  std::string prompts;
  constexpr int kPrompts = 66'000;
  for (int i = 0; i < kPrompts; ++i) prompts += fmt::format("{}\n", i % 300);
  folder_.write("prompts", prompts);
  const Outcome generate =
      run({"generate", "--model", kGolden + "tiny", "--prompts", path("prompts"), "--max-tokens", "1", "--max-running", "256"});
  EXPECT_EQ(generate.exit_code, 0) << generate.err;
  EXPECT_EQ(std::count(generate.out.begin(), generate.out.end(), '\n'), kPrompts);
}

TEST_F(CommandLine, DamagedSmallTensorsAreNamed) {
  fs::copy(kGolden + "tiny", path("damaged"));
  std::string bytes = folder_.read("damaged/model.safetensors");
  // The first value behind the header is set to a NaN where the tensor is small enough to be looked at whole.
  const std::string name = "model.language_model.layers.0.self_attn.A_log";
  const size_t entry = bytes.find(name);
  ASSERT_NE(entry, std::string::npos);
  const size_t offsets = bytes.find("\"data_offsets\":[", entry) + 16;
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&bytes[8 + header + std::stoull(bytes.substr(offsets))], &nan, sizeof nan);
  folder_.write("damaged/model.safetensors", bytes);
  expect_failure({"generate", "--model", path("damaged"), "--prompt-ids", "1"}, {name, "nan", "index 0"});
}

TEST_F(CommandLine, PipesInPlaceOfFilesDoNotHang) {
  ASSERT_EQ(::mkfifo(path("config.json").c_str(), 0600), 0);
  expect_failure({"inspect", path("")}, {"config.json", "not a regular file"});
}

TEST_F(CommandLine, SimulatesWorldsByTheirSeeds) {
  const Outcome o = run({"simulate", "--seed", "3", "--hours", "2", "--until-ms", "60000"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_NE(o.out.find("worlds 2,"), std::string::npos) << o.out;
  const Outcome traced =
      run({"simulate", "--seed", "3", "--until-ms", "60000", "--only-requests", "0,2", "--without", "loss,cancel", "--trace"});
  EXPECT_EQ(traced.exit_code, 0) << traced.err;
  EXPECT_NE(traced.out.find("requests 2:"), std::string::npos) << traced.out;
  EXPECT_NE(run({"simulate", "--without", "gremlins"}).err.find("there is no fault 'gremlins'; there are loss, double"), std::string::npos);
  EXPECT_NE(run({"simulate", "--only-requests", "x"}).err.find("--only-requests: 'x' is not a number"), std::string::npos);
  EXPECT_EQ(run({"simulate", "--until-ms", "2", "--coverage"}).exit_code, 1);
  EXPECT_EQ(run({"simulate", "--hours", "0"}).exit_code, 2);
}

TEST_F(CommandLine, AClosedStandardErrorChangesNoExitCode) {
  const auto code = [&](const std::string& arguments) {
    return WEXITSTATUS(std::system(fmt::format("{} {} >/dev/null 2>&-", BATON_PROGRAM, arguments).c_str()));
  };
  EXPECT_EQ(code("inspect " + path("absent")), 1);
  EXPECT_EQ(code("generate --model " + kGolden + "tiny --prompt-ids 1 --max-tokens 1"), 0);
}

TEST_F(CommandLine, OutputThatCannotBeWrittenIsAFailure) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  const std::string command = fmt::format("{} inspect {}tiny >/dev/full 2>{}", BATON_PROGRAM, kGolden, path("message"));
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(folder_.read("message").find("baton: "), std::string::npos);
}

}  // namespace
}  // namespace baton
