#include "server/settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

namespace baton::server {
namespace {

std::string file_with(const std::string& text) {
  const std::string path = testing::TempDir() + "baton-settings-test.yaml";
  std::ofstream(path) << text;
  return path;
}

TEST(Settings, TheNearerSourceWins) {
  SettingSources sources;
  sources.file = file_with("port: 1\nhost: file\nmax_num_seqs: 3\napi-key: [a, b]\n");
  const std::map<std::string, std::string> environment{{"BATON_HOST", "environment"}, {"BATON_MAX_NUM_SEQS", "4"}};
  sources.environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  };
  sources.flags = {{"max-running-requests", "5"}, {"disable-radix-cache", "true"}, {"api-key", "c"}, {"api-key", "d"}};
  const auto loaded = load_settings(sources);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Settings& s = loaded->values;
  EXPECT_EQ(s.port, 1);
  EXPECT_EQ(s.host, "environment");
  EXPECT_EQ(s.running, 5);
  EXPECT_FALSE(s.prefix_caching);
  EXPECT_EQ(s.api_keys, (std::vector<std::string>{"c", "d"}));
  const std::string dumped = dump(*loaded, true);
  EXPECT_EQ(dumped.find("\"c\""), std::string::npos) << "keys are not shown";
  EXPECT_NE(dumped.find("# environment"), std::string::npos);
}

TEST(Settings, AnEmptyKeyIsNoOpenServer) {
  for (const char* key : {"", " ", ","}) {
    SettingSources sources;
    sources.flags = {{"api-key", key}};
    const auto loaded = load_settings(sources);
    ASSERT_FALSE(loaded.ok()) << '"' << key << '"';
    EXPECT_NE(loaded.error().message.find("the key is empty"), std::string::npos) << loaded.error().message;
  }
}

// From a variable that is not set, say: nothing is taken for "none" that would serve other than was meant.
TEST(Settings, NothingIsGivenEmpty) {
  for (const Setting& s : all_settings()) {
    for (const bool flag : {true, false}) {
      SettingSources sources;
      if (flag) sources.flags = {{std::string(s.name), ""}};
      sources.environment = [&](const std::string& name) -> std::optional<std::string> {
        return !flag && name == environment_name(s) ? std::optional<std::string>("") : std::nullopt;
      };
      const auto loaded = load_settings(sources);
      ASSERT_FALSE(loaded.ok()) << s.name;
      EXPECT_NE(loaded.error().message.find(flag ? std::string(s.name) : environment_name(s)), std::string::npos) << loaded.error().message;
    }
  }
  SettingSources sources;
  sources.file = file_with("host: ''\n");
  EXPECT_FALSE(load_settings(sources).ok());
}

TEST(Settings, WhatIsDumpedIsReadAgain) {
  SettingSources sources;
  sources.flags = {{"model", "a \"b\"\\c"}, {"allowed-origins", "x,y"}, {"no-log-requests", "true"}, {"snapshots", "-1"}};
  const auto first = load_settings(sources);
  ASSERT_TRUE(first.ok()) << first.error().message;
  SettingSources again;
  again.file = file_with(dump(*first, true));
  const auto second = load_settings(again);
  ASSERT_TRUE(second.ok()) << second.error().message;
  for (const Setting& s : all_settings()) EXPECT_EQ(text_of(first->values, s), text_of(second->values, s)) << s.name;
  EXPECT_FALSE(second->values.log_requests);
}

TEST(Settings, WhatIsWrongIsNamedWithItsPlace) {
  const std::map<std::string, std::string> wrong{
      {"host: a\nprot: 1\n", ":2: prot: there is no setting"},
      {"port: x\n", ":1: port: x is not a whole number"},
      {"port: 70000\n", "from 0 to 65535"},
      {"dtype: float16\n", "float16 is none of auto"},
      {"port: [1, 2]\n", "one value is expected"},
      {"port:\n", "a value is missing"},
      {"port: 1\nmax_num_seqs: 3\nmax-num-seqs: 4\n", ":3: max-num-seqs: stands there twice"},
      {"max-model-len: 256\ncontext-length: 128\n", ":2: context-length: stands there twice, once as max-model-len"},
      {"strict-requests: perhaps\n", "neither true nor false"},
      {"- a\n", "name: value"},
      {"a: [\n", "baton-settings-test.yaml:"},
  };
  for (const auto& [text, message] : wrong) {
    SettingSources sources;
    sources.file = file_with(text);
    const auto loaded = load_settings(sources);
    ASSERT_FALSE(loaded.ok()) << text;
    EXPECT_NE(loaded.error().message.find(message), std::string::npos) << loaded.error().message;
  }
}

TEST(Settings, NamesAreThereOnce) {
  std::set<std::string> names;
  for (const Setting& s : all_settings()) {
    EXPECT_TRUE(names.insert(std::string(s.name)).second) << s.name;
    for (const std::string_view alias : s.aliases) {
      const std::string flag(alias.substr(alias.front() == '!' ? 1 : 0));
      EXPECT_TRUE(names.insert(flag).second) << flag;
    }
    Settings settings;
    EXPECT_TRUE(s.repeats() || assign(settings, s, text_of(settings, s), "default").ok()) << s.name;
  }
}

}  // namespace
}  // namespace baton::server
