// Grammars through the engine: many requests at once, each held to its own, on a device that would draw anything. Skipped without the
// grammar library.
#include <boost/json/parse.hpp>
#include <random>
#include <regex>

#include "base/test_seed.h"
#include "engine/gathering_sink.h"
#include "engine/grammar_constraint.h"
#include "engine/token_executor.h"
#include "text/grammar/grammar_fixture.h"

namespace baton::engine {
namespace {

using sched::FinishReason;
using text::Kind;

struct Form {
  Kind kind;
  std::string text;
  std::function<bool(const std::string&)> holds;
};

bool matches(const std::string& output, const char* pattern) { return std::regex_match(output, std::regex(pattern)); }

std::vector<Form> forms() {
  return {{Kind::kRegex, "(yes|no), [0-9]{2}", [](const std::string& s) { return matches(s, "(yes|no), [0-9]{2}"); }},
          {Kind::kEbnf, "root ::= \"<\" [a-f] [a-f]? \">\"", [](const std::string& s) { return matches(s, "<[a-f]{1,2}>"); }},
          {Kind::kJsonSchema, R"({"type":"object","properties":{"a":{"enum":["x","yz"]},"b":{"type":"boolean"}},"required":["a","b"]})",
           [](const std::string& s) {
             boost::system::error_code error;
             const boost::json::value v = boost::json::parse(s, error);
             return !error && v.is_object() && v.as_object().size() == 2 && v.at("a").is_string() && v.at("b").is_bool();
           }}};
}

TEST(EngineGrammar, EveryChoiceIsWhatItsGrammarAllows) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  const auto c = text::compiler();
  SKIP_WITHOUT_LIBRARY(c);
  std::vector<text::GrammarCompiler::Compiled> grammars;
  for (const Form& f : forms()) grammars.push_back(text::compiled(*c, f.kind, f.text));
  const int32_t end = text::id_of("<|endoftext|>");

  EngineOptions o;
  o.scheduler.memory = {.pages = 12, .slots = 6, .snapshots = 2, .host_pages = 8, .host_slots = 2};
  o.scheduler.context_tokens = 256;
  o.scheduler.vocabulary = text::tokenizer().id_limit() + 100;
  o.scheduler.growth_tokens = 16;
  const auto engine = std::move(*Engine::create(std::make_unique<TokenExecutor>(o.scheduler.memory, o.scheduler.vocabulary), o));
  std::vector<std::unique_ptr<GatheringSink>> sinks;
  for (size_t i = 0; i < 60; ++i) {
    sched::RequestSpec spec;
    spec.prompt.assign(1 + random() % 100, static_cast<int32_t>(i));
    spec.choices = 1 + static_cast<int32_t>(i % 4);
    if (i % 2 == 0) spec.stop_tokens = {end, text::id_of("<|user|>")};
    auto matcher = text::GrammarMatcher::create(grammars[i % 3]);
    ASSERT_TRUE(matcher.ok());
    sinks.push_back(std::make_unique<GatheringSink>(spec.choices));
    ASSERT_TRUE(engine->submit(spec, *sinks.back(), constrain(std::move(*matcher))).ok());
  }
  const std::vector<Form> all = forms();
  for (size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->wait();
    for (const GatheringSink::Choice& choice : sinks[i]->choices()) {
      // White space in JSON has no bound; a device without a model may not come to its end.
      if (i % 3 == 2 && choice.reason == FinishReason::kLength) continue;
      ASSERT_EQ(choice.reason, FinishReason::kStop);
      const std::string output = text::tokenizer().decode(choice.tokens, true);
      EXPECT_TRUE(all[i % 3].holds(output)) << output;
    }
  }
  engine->wait_idle();
  for (const auto& grammar : grammars) EXPECT_LE(grammar.use_count(), 2);  // this one, and the compiler's cache: no matcher is left
}

// Lets `token` alone come after `count` others, whatever else the constraint inside allows.
class Forced final : public Constraint {
 public:
  Forced(std::unique_ptr<Constraint> inside, int64_t count, int32_t token) : inside_(std::move(inside)), count_(count), token_(token) {}
  size_t mask_words() const override { return inside_->mask_words(); }
  Result<Next> next(std::span<uint32_t> mask) override {
    if (count_ != 0) return inside_->next(mask);
    std::fill(mask.begin(), mask.end(), 0);
    mask[static_cast<size_t>(token_) / 32] |= 1U << token_ % 32;
    return Next::kSome;
  }
  Status accept(int32_t token) override {
    --count_;
    return inside_->accept(token);
  }
  Status rollback(size_t tokens) override {
    count_ += static_cast<int64_t>(tokens);
    return inside_->rollback(tokens);
  }
  Result<std::unique_ptr<Constraint>> fork() const override { return Error{Error::Kind::kUnsupported, "not here"}; }

 private:
  std::unique_ptr<Constraint> inside_;
  int64_t count_;
  int32_t token_;
};

// A model that reasons first writes what it likes until </think>, and the grammar begins behind it.
TEST(EngineGrammar, BeginsBehindTheReasoning) {
  const auto c = text::compiler();
  SKIP_WITHOUT_LIBRARY(c);
  const auto grammar = text::compiled(*c, Kind::kRegex, "[0-9]{3}");
  const int32_t think = text::id_of("</think>");
  EngineOptions o;
  o.scheduler.memory = {.pages = 12, .slots = 2};
  o.scheduler.context_tokens = 512;
  o.scheduler.vocabulary = text::tokenizer().id_limit() + 100;
  const auto engine = std::move(*Engine::create(std::make_unique<TokenExecutor>(o.scheduler.memory, o.scheduler.vocabulary), o));
  sched::RequestSpec spec;
  spec.prompt = {5, 6};
  auto matcher = text::GrammarMatcher::create(grammar, {.begins_after = think});
  ASSERT_TRUE(matcher.ok());
  GatheringSink sink;
  ASSERT_TRUE(engine->submit(spec, sink, std::make_unique<Forced>(constrain(std::move(*matcher)), 20, think)).ok());
  sink.wait();
  const GatheringSink::Choice& got = sink.choices()[0];
  EXPECT_EQ(got.reason, FinishReason::kStop);
  const auto begin = std::find(got.tokens.begin(), got.tokens.end(), think);
  ASSERT_EQ(begin - got.tokens.begin(), 20);
  EXPECT_TRUE(matches(text::tokenizer().decode(std::vector<int32_t>(begin + 1, got.tokens.end()), true), "[0-9]{3}"));
}

}  // namespace
}  // namespace baton::engine

int main(int argc, char** argv) { return baton::text::run_tests_or_worker(argc, argv); }
