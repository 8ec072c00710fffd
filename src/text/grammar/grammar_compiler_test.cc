// How compiling stands up to clients. With the grammar library; skipped where it is missing.
#include <chrono>
#include <thread>

#include "text/grammar/grammar_fixture.h"

namespace baton::text {
namespace {

using std::chrono::steady_clock;

TEST(GrammarCompiler, HostileGrammarsAreRefusedInTime) {
  GrammarCompilerOptions options{.workers = 1};
  options.limits.compile_ms = 700;
  const auto c = compiler(options);
  SKIP_WITHOUT_LIBRARY(c);
  const auto repeated = [](const std::string& unit, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += unit;
    return text;
  };
  std::string properties, values, alternatives;
  for (int i = 0; i < 1000; ++i) properties += fmt::format("{}\"p{}\":{{\"type\":\"string\"}}", i == 0 ? "" : ",", i);
  for (int i = 0; i < 200; ++i) alternatives += fmt::format("{}[a-z]{{{},{}}}x", i == 0 ? "" : "|", i, i + 50);
  for (int i = 0; i < 15000; ++i) values += fmt::format("{}\"value {}\"", i == 0 ? "" : ",", i);
  const std::vector<std::pair<GrammarSpec, bool>> hostile = {
      // whether it has to be refused; else it may also just be compiled
      {{Kind::kJsonSchema, repeated(R"({"type":"object","properties":{"a":)", 500) + "{}" + repeated("}}", 500)}, true},
      {{Kind::kJsonSchema, repeated("[", 100000)}, true},
      {{Kind::kJsonSchema, R"({"$ref":"#"})"}, true},
      {{Kind::kJsonSchema, R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}})"},
       true},
      {{Kind::kJsonSchema, R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"}, true},
      {{Kind::kJsonSchema, R"({"$ref":"https://example.org/schema"})"}, true},
      {{Kind::kJsonSchema, R"({"type":"array","items":{},"minItems":4000000000})"}, true},
      {{Kind::kJsonSchema, R"({"type":"array","items":{"type":"array","items":{"type":"string"},"minItems":999999},"minItems":999999})"},
       false},
      {{Kind::kJsonSchema, R"({"type":"string","maxLength":1000000})"}, false},
      {{Kind::kJsonSchema, "{\"type\":\"object\",\"properties\":{" + properties + "}}"}, false},
      {{Kind::kRegex, alternatives}, true},  // ten seconds and more
      {{Kind::kJsonSchema, "{\"enum\":[" + values + "]}"}, false},
      {{Kind::kJsonSchema, "{\"const\":\"" + std::string(3000000, 'x') + "\"}"}, true},
      {{Kind::kJsonSchema, "{\"type\":\"string\xFF\"}"}, true},
      {{Kind::kJsonSchema, "not json"}, true},
      {{Kind::kJsonSchema, R"({"type":"string","pattern":"((a{0,999}){0,999}){0,999}"})"}, false},
      {{Kind::kRegex, repeated("(", 50000) + repeated(")", 50000)}, true},
      {{Kind::kRegex, "(a|a)*(a|a)*(a|a)*(a|a)*b{1,99999}"}, false},
      {{Kind::kRegex, "a{99999999999}"}, true},
      {{Kind::kRegex, "(?=a)b"}, true},
      {{Kind::kRegex, "\xC3"}, true},
      {{Kind::kRegex, std::string("a\0b", 3)}, true},
      {{Kind::kEbnf, "root ::= root"}, true},
      {{Kind::kEbnf, "root ::= root root root | \"\" | \"a\""}, false},
      {{Kind::kEbnf, "root ::= other"}, true},
      {{Kind::kEbnf, ""}, true},
      {{Kind::kStructuralTag, "{}"}, true},
      {{Kind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"token","token":99999999}})"}, true},
      {{Kind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":{"$ref":"#"}}})"}, true},
  };
  for (const auto& [spec, has_to_fail] : hostile) {
    const auto start = steady_clock::now();
    const auto result = c->compile(spec).get();
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - start).count();
    const std::string name = spec.text.substr(0, 100);
    // The limit, and what it takes to start another worker on a busy machine.
    EXPECT_LT(took, 8000) << name;
    EXPECT_TRUE(!has_to_fail || !result.ok()) << name;
    EXPECT_TRUE(result.ok() || !result.error().message.empty()) << name;
    EXPECT_NE(compiled(*c, Kind::kRegex, "still works"), nullptr) << "after " << name;
  }
}

TEST(GrammarCompiler, LimitsAreNamed) {
  const std::string slow = [] {
    std::string properties;
    for (int i = 0; i < 5000; ++i) properties += fmt::format("{}\"p{}\":{{\"type\":\"string\"}}", i == 0 ? "" : ",", i);
    return "{\"type\":\"object\",\"properties\":{" + properties + "}}";
  }();
  GrammarCompilerOptions options{.workers = 1};
  options.limits.compile_ms = 200;
  const auto brief = compiler(options);
  SKIP_WITHOUT_LIBRARY(brief);
  const auto late = brief->compile({Kind::kJsonSchema, slow}).get();
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().kind, Error::Kind::kExhausted);
  EXPECT_NE(late.error().message.find("200 ms"), std::string::npos) << late.error().message;
  EXPECT_EQ(brief->counters().workers_killed, 1);
  options.limits.compile_ms = 3000;
  options.limits.grammar_bytes = 1000;
  const auto small = compiler(options);
  const auto large = small->compile({Kind::kJsonObject, ""}).get();
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.error().message.find("may have 1000"), std::string::npos) << large.error().message;
}

TEST(GrammarCompiler, WarningsOfTheLibraryAreRefusals) {
  const auto c = compiler();
  SKIP_WITHOUT_LIBRARY(c);
  const auto result = c->compile({Kind::kRegex, "a^b"}).get();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, Error::Kind::kUnsupported) << result.error().message;
}

TEST(GrammarCompiler, EqualGrammarsAreCompiledOnceAndKeptWithinBounds) {
  GrammarCompilerOptions options;
  options.cache_bytes = size_t{4} << 20;
  const auto c = compiler(options);
  SKIP_WITHOUT_LIBRARY(c);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&c] {
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(c->compile({Kind::kRegex, fmt::format("[a-z]{{{}}}", 1 + i % 4)}).get().ok());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(c->counters().compiled, 4);
  EXPECT_EQ(c->counters().cache_hits, 8 * 20 - 4);
  for (int i = 0; i < 30; ++i)
    EXPECT_TRUE(c->compile({Kind::kJsonSchema, fmt::format(R"({{"type":"string","title":"{}"}})", i)}).get().ok());
  EXPECT_LE(c->counters().cached_bytes, options.cache_bytes);
  EXPECT_EQ(c->counters().waiting, 0U);
}

TEST(GrammarCompiler, BusyAndBrokenWorkersSayNotNow) {
  const auto c = compiler({.workers = 1, .most_waiting = 1});
  SKIP_WITHOUT_LIBRARY(c);
  std::vector<GrammarCompiler::Future> futures;
  for (int i = 0; i < 20; ++i) futures.push_back(c->compile({Kind::kRegex, fmt::format("x{}", i)}));
  int busy = 0;
  for (const auto& future : futures)
    if (!future.get().ok()) {
      EXPECT_EQ(future.get().error().kind, Error::Kind::kIo);
      ++busy;
    }
  EXPECT_GT(busy, 0);
  EXPECT_EQ(c->counters().busy, busy);
  for (const char* program : {"/nonexistent/program", "/bin/false"}) {
    const auto broken = compiler({.worker_command = {program}});
    const auto result = broken->compile({Kind::kRegex, "x"}).get();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, Error::Kind::kIo) << result.error().message;
  }
}

}  // namespace
}  // namespace baton::text

int main(int argc, char** argv) { return baton::text::run_tests_or_worker(argc, argv); }
