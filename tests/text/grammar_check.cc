// grammar_check [--schemas N] [--tools N] [--seed S] [--tokenizer FILE]: random schemas against a random model. What comes out has to parse
// and to satisfy the schema unless it was cut; calls of functions have to come through the output parser as calls that satisfy their
// parameters. Prints a table and what compiling and masks cost; exits 1 on a violation, 77 where the grammar library is missing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include "text/grammar.h"
#include "text/grammar/tool_grammar.h"
#include "text/grammar/worker.h"
#include "text/parse/cuttings.h"
#include "text/random_model.h"
#include "text/random_schema.h"

namespace baton::text {
namespace {

namespace json = boost::json;
using std::chrono::steady_clock;

constexpr int kShownViolations = 10;
constexpr size_t kMostTokens = 400;
constexpr double kSlowMaskUs = 10000;  // shown with its schema

struct Row {
  int64_t cases = 0, refused = 0, ended = 0, cut = 0, slow = 0, violations = 0, tokens = 0;
  double compile_ms = 0, worst_compile_ms = 0, mask_us = 0, worst_mask_us = 0;
  std::string slowest;  // where the slowest mask was
};

class Check {
 public:
  Check(const Tokenizer& tokenizer, GrammarCompiler& compiler, std::vector<int32_t> stop_ids, uint64_t seed)
      : tokenizer_(tokenizer), compiler_(compiler), stop_ids_(std::move(stop_ids)), markup_(tokenizer), seed_(seed), random_(seed) {}

  void schema(uint64_t number) {
    const json::value schema = RandomSchema(seed_ * 1000003 + number).schema();
    const std::string text = json::serialize(schema);
    const auto output = run(rows_[0], {GrammarSpec::Kind::kJsonSchema, text}, {});
    if (!output || !output->ended) return;
    const std::string written = tokenizer_.decode(output->ids);
    json::error_code error;
    json::parse_options options;
    options.max_depth = 1000;
    const json::value value = json::parse(with_whole_surrogates(written), error, {}, options);
    if (error == json::error::exponent_overflow) return;  // JSON, but no number of this parser
    const std::string wrong = error ? "no JSON: " + error.message() : violation(value, schema, schema);
    if (!wrong.empty()) violated(rows_[0], fmt::format("{}: {}\n  schema {}", wrong, written, text));
  }

  void tools(uint64_t number) {
    RandomSchema source(seed_ * 2000003 + number);
    std::vector<ToolFunction> functions;
    ToolTypes types;
    for (uint64_t i = 0; i < 1 + number % 3; ++i) {
      functions.push_back({fmt::format("f{}.do-it", i), source.parameters()});
      types.add(functions.back().name, functions.back().parameters);
    }
    using Choice = ToolGrammarOptions::Choice;
    const auto choice = static_cast<Choice>(number % 3);
    const bool reasons = number % 2 == 0;
    const auto spec =
        tool_call_grammar(functions, {.choice = choice, .named = functions.back().name, .parallel = number % 5 != 0}, markup_, tokenizer_);
    Row& row = rows_[1 + number % 3];
    if (!spec.ok()) {
      ++row.cases;
      ++row.refused;
      return;
    }
    GrammarMatcher::Options options;
    if (reasons) options = {.begins_after = markup_.id(Marker::kThinkEnd), .not_before = tool_markers(markup_)};
    const auto output = run(row, *spec, options);
    if (!output || !output->ended) return;
    const auto events =
        parse_ids(markup_, {.starts_in_reasoning = reasons, .tools = &types, .tokenizer = &tokenizer_}, output->ids, FinishReason::kStop);
    const std::string wrong = wrong_calls(events, functions, choice, number % 5 != 0);
    if (!wrong.empty()) violated(row, fmt::format("{}: {}\n  grammar {}", wrong, tokenizer_.decode(output->ids), spec->text));
  }

  int report() const {
    fmt::print("{:<16}{:>8}{:>9}{:>8}{:>7}{:>6}{:>12}{:>12}{:>11}{:>10}{:>11}\n", "what", "cases", "refused", "ended", "cut", "slow",
               "violations", "compile ms", "worst", "mask us", "worst");
    constexpr const char* kNames[] = {"schemas", "tools auto", "tools required", "tools named"};
    int64_t violations = 0, cases = 0, ended = 0;
    for (size_t i = 0; i < std::size(rows_); ++i) {
      const Row& r = rows_[i];
      if (r.cases == 0) continue;
      const auto compiled = static_cast<double>(std::max<int64_t>(1, r.cases - r.refused)),
                 tokens = static_cast<double>(std::max<int64_t>(1, r.tokens));
      fmt::print("{:<16}{:>8}{:>9}{:>8}{:>7}{:>6}{:>12}{:>12.2f}{:>11.1f}{:>10.1f}{:>11.0f}\n", kNames[i], r.cases, r.refused, r.ended,
                 r.cut, r.slow, r.violations, r.compile_ms / compiled, r.worst_compile_ms, r.mask_us / tokens, r.worst_mask_us);
      violations += r.violations;
      cases += r.cases;
      ended += r.ended;
    }
    for (const Row& r : rows_)
      if (r.worst_mask_us > kSlowMaskUs) fmt::print("a mask of {:.0f} us: {}\n", r.worst_mask_us, r.slowest);
    fmt::print("{} violations (seed {})\n", violations, seed_);
    return violations == 0 && 2 * ended > cases ? 0 : 1;
  }

 private:
  std::optional<RandomOutput> run(Row& row, const GrammarSpec& spec, const GrammarMatcher::Options& options) {
    ++row.cases;
    const auto begin = steady_clock::now();
    const auto compiled = compiler_.compile(spec).get();
    const double took = std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
    if (!compiled.ok()) {
      ++row.refused;
      // Random schemas contradict themselves, or are too ambiguous, now and then; a worker that fails is no reason.
      if (compiled.error().kind == Error::Kind::kIo)
        violated(row, fmt::format("refused: {}\n  {}", compiled.error().message, spec.text));
      else if (refusals_++ < kShownViolations)
        fmt::print("refused: {}\n", compiled.error().message);
      return std::nullopt;
    }
    row.compile_ms += took;
    row.worst_compile_ms = std::max(row.worst_compile_ms, took);
    auto matcher = GrammarMatcher::create(*compiled, options);
    if (!matcher.ok()) {
      violated(row, matcher.error().message);
      return std::nullopt;
    }
    // The reasoning before it is short: a random model would never end it.
    std::vector<int32_t> before;
    if (options.begins_after) {
      before = {tokenizer_.encode("so be it")->front(), *options.begins_after};
      for (const int32_t id : before)
        if (const auto accepted = matcher->accept(id); !accepted.ok() || !*accepted) violated(row, "reasoning is not accepted");
    }
    RandomOutput output = write_at_random(*matcher, tokenizer_, stop_ids_, random_, kMostTokens);
    row.tokens += output.masks;
    row.mask_us += output.mask_us;
    if (output.worst_mask_us > row.worst_mask_us) {
      row.worst_mask_us = output.worst_mask_us;
      row.slowest = spec.text;
    }
    if (output.too_slow) {
      ++row.slow;
      return std::nullopt;
    }
    if (!output.wrong.empty()) {
      violated(row, fmt::format("{} after {}\n  {}", output.wrong, tokenizer_.decode(output.ids), spec.text));
      return std::nullopt;
    }
    ++(output.ended ? row.ended : row.cut);
    output.ids.insert(output.ids.begin(), before.begin(), before.end());
    return output;
  }

  std::string wrong_calls(const std::vector<OutputEvent>& events, const std::vector<ToolFunction>& functions,
                          ToolGrammarOptions::Choice choice, bool parallel) const {
    using Choice = ToolGrammarOptions::Choice;
    const ToolFunction* called = nullptr;
    std::string arguments;
    int calls = 0;
    for (const OutputEvent& e : events) {
      if (e.kind == OutputEvent::Kind::kContent && choice != Choice::kAuto) return "there is text beside the calls: " + e.text;
      if (e.kind == OutputEvent::Kind::kToolStart) {
        ++calls;
        arguments.clear();
        called = nullptr;
        for (const ToolFunction& f : functions)
          if (f.name == e.text) called = &f;
        if (called == nullptr || (choice == Choice::kNamed && called != &functions.back())) return "the wrong function is called";
      }
      if (e.kind == OutputEvent::Kind::kToolArguments) arguments += e.text;
      if (e.kind == OutputEvent::Kind::kToolEnd) {
        json::error_code error;
        json::parse_options options;
        options.max_depth = 1000;
        const json::value value = json::parse(arguments, error, {}, options);
        if (error == json::error::exponent_overflow) continue;
        if (error) return "arguments are no JSON";
        if (std::string wrong = violation(value, called->parameters, called->parameters); !wrong.empty())
          return fmt::format("{} in {}", wrong, arguments);
      }
    }
    if (choice == Choice::kNamed && calls != 1) return fmt::format("{} calls", calls);
    if (choice == Choice::kRequired && calls == 0) return "no call";
    if (!parallel && calls > 1) return fmt::format("{} calls, one may be", calls);
    return {};
  }

  void violated(Row& row, const std::string& what) {
    ++row.violations;
    if (shown_++ < kShownViolations) fmt::print("violation: {}\n", what);
  }

  const Tokenizer& tokenizer_;
  GrammarCompiler& compiler_;
  std::vector<int32_t> stop_ids_;
  OutputMarkup markup_;
  uint64_t seed_;
  std::mt19937_64 random_;
  Row rows_[4];
  int shown_ = 0, refusals_ = 0;
};

int run(int argc, char** argv) {
  CLI::App app("random schemas against a random model");
  uint64_t schemas = 100, tools = 60, seed = 1;
  std::string tokenizer_file = BATON_TEST_DATA "/tokenizers/glm-like.json";
  app.add_option("--schemas", schemas);
  app.add_option("--tools", tools);
  app.add_option("--seed", seed);
  app.add_option("--tokenizer", tokenizer_file);
  CLI11_PARSE(app, argc, argv);
  const auto tokenizer = Tokenizer::load(tokenizer_file);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "grammar_check: {}\n", tokenizer.error().message);
    return 1;
  }
  std::vector<int32_t> stop_ids;
  for (const char* name : {"<|endoftext|>", "<|user|>", "<|observation|>"}) stop_ids.push_back(tokenizer->id_of(name).value_or(0));
  auto compiler = GrammarCompiler::start(GrammarVocabulary::of(*tokenizer, stop_ids, tokenizer->id_limit()));
  if (!compiler.ok()) {
    fmt::print(stderr, "grammar_check: {}\n", compiler.error().message);
    return compiler.error().kind == Error::Kind::kUnsupported ? 77 : 1;
  }
  Check check(*tokenizer, **compiler, stop_ids, seed);
  for (uint64_t i = 0; i < schemas; ++i) check.schema(i);
  for (uint64_t i = 0; i < tools; ++i) check.tools(i);
  return check.report();
}

}  // namespace
}  // namespace baton::text

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "grammar-worker") return baton::text::run_grammar_worker();
  return baton::text::run(argc, argv);
}
