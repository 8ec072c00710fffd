// bench_grammar [TOKENIZER [COLUMNS]]: what structured output costs. Compiling a grammar alone, and as a client waits for it (tried out in
// a worker first); one mask; the masks along a draft of seven tokens; a fork. COLUMNS beyond the tokenizer's ids are filled with pairs of
// its tokens, to look at a vocabulary of a released model's size with a small tokenizer. Needs the grammar library.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <chrono>
#include <functional>
#include <random>

#include "text/grammar/backend.h"
#include "text/grammar/tool_grammar.h"
#include "text/grammar/worker.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

using std::chrono::steady_clock;

double milliseconds(const std::function<void()>& work) {
  const auto begin = steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}

struct Samples {
  std::vector<double> us;
  double at(double share) {
    if (us.empty()) return 0;
    std::sort(us.begin(), us.end());
    return us[std::min(us.size() - 1, static_cast<size_t>(share * static_cast<double>(us.size())))];
  }
};

int32_t random_token(const std::vector<int32_t>& row, std::mt19937_64& random) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < row.size() * 32; ++i)
    if ((static_cast<uint32_t>(row[i / 32]) >> i % 32 & 1) != 0) ids.push_back(static_cast<int32_t>(i));
  return ids.empty() ? -1 : ids[random() % ids.size()];
}

void measure(const std::string& name, const GrammarSpec& spec, const GrammarBackend& backend, GrammarCompiler& compiler) {
  Samples compile;
  for (int i = 0; i < 5; ++i) compile.us.push_back(1000 * milliseconds([&] { static_cast<void>(backend.compile(spec).ok()); }));
  GrammarCompiler::Compiled grammar;
  std::string refused;
  const double waited = milliseconds([&] {
    const auto result = compiler.compile(spec).get();
    if (result.ok())
      grammar = *result;
    else
      refused = result.error().message;
  });
  if (grammar == nullptr) {
    fmt::print("{:<24} refused after {:.1f} ms: {}\n", name, waited, refused);
    return;
  }
  std::mt19937_64 random(1);
  Samples masks, drafts, forks;
  for (int walk = 0; walk < 20; ++walk) {
    auto matcher = GrammarMatcher::create(grammar);
    std::vector<int32_t> row(matcher->row_words()), rows(8 * matcher->row_words());
    for (int step = 0; step < 100 && !matcher->terminated(); ++step) {
      masks.us.push_back(1000 * milliseconds([&] { static_cast<void>(matcher->fill(row).ok()); }));
      const int32_t token = random_token(row, random);
      if (step % 10 == 0) {
        auto ahead = matcher->fork();
        std::vector<int32_t> draft;
        for (int i = 0; i < 7 && !ahead->terminated(); ++i) {
          std::vector<int32_t> next(row.size());
          static_cast<void>(ahead->fill(next).ok());
          draft.push_back(random_token(next, random));
          static_cast<void>(ahead->accept(draft.back()).ok());
        }
        drafts.us.push_back(1000 * milliseconds([&] {
                              static_cast<void>(matcher->fill_along(draft, std::span(rows).first((draft.size() + 1) * row.size())).ok());
                            }));
        forks.us.push_back(1000 * milliseconds([&] { static_cast<void>(matcher->fork().ok()); }));
      }
      if (!*matcher->accept(token)) break;
    }
  }
  fmt::print("{:<24}{:>10.2f}{:>10.1f}{:>8.2f}{:>9.1f}{:>9.1f}{:>10.1f}{:>9.1f}\n", name, compile.at(0.5) / 1000, waited,
             static_cast<double>(grammar->bytes()) / (1 << 20), masks.at(0.5), masks.at(0.99), drafts.at(0.5), forks.at(0.5));
}

int run(const std::string& file, int32_t columns) {
  const auto tokenizer = Tokenizer::load(file);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "bench_grammar: {}\n", tokenizer.error().message);
    return 1;
  }
  columns = std::max(columns, tokenizer->id_limit());
  GrammarVocabulary vocabulary =
      GrammarVocabulary::of(*tokenizer, {*tokenizer->id_of("<|endoftext|>"), *tokenizer->id_of("<|user|>")}, columns);
  std::mt19937_64 random(1);
  for (auto id = static_cast<size_t>(tokenizer->id_limit()); id < vocabulary.tokens.size(); ++id)
    for (int i = 0; i < 2; ++i) vocabulary.tokens[id] += tokenizer->bytes(static_cast<int32_t>(random() % 12000));
  const auto backend = GrammarBackend::create(vocabulary, {});
  auto compiler = GrammarCompiler::start(vocabulary);
  if (!backend.ok() || !compiler.ok()) {
    fmt::print(stderr, "bench_grammar: {}\n", backend.ok() ? compiler.error().message : backend.error().message);
    return 1;
  }
  static_cast<void>((*compiler)->compile({GrammarSpec::Kind::kRegex, "x"}).get());  // the worker is up
  const std::vector<ToolFunction> tools = {
      {"get_weather",
       boost::json::parse(R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]})")},
      {"search", boost::json::parse(
                     R"({"type":"object","properties":{"query":{"type":"string"},
                 "filter":{"type":"object","properties":{"year":{"type":"integer"}}}}})")}};
  using Kind = GrammarSpec::Kind;
  fmt::print("{} columns\n{:<24}{:>10}{:>10}{:>8}{:>9}{:>9}{:>10}{:>9}\n", columns, "", "compile ms", "waited ms", "MiB", "mask us", "99 %",
             "draft us", "fork us");
  measure("any object", {Kind::kJsonObject, ""}, **backend, **compiler);
  measure("two properties",
          {Kind::kJsonSchema, R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]})"},
          **backend, **compiler);
  measure("list of records",
          {Kind::kJsonSchema, R"({"type":"array","items":{"type":"object","properties":{"id":{"type":"string","pattern":"^[a-f0-9]{8}$"},
      "kind":{"enum":["alpha","beta","gamma"]},"score":{"type":"number","minimum":0,"maximum":1},
      "tags":{"type":"array","items":{"type":"string","maxLength":20}}},
      "required":["id","kind","score","tags"]},"maxItems":50})"},
          **backend, **compiler);
  measure("recursive tree",
          {Kind::kJsonSchema,
           R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array",
      "items":{"$ref":"#/$defs/n"}}},"required":["name","children"]}}})"},
          **backend, **compiler);
  measure("pattern", {Kind::kRegex, "[A-Z][a-z]{2,10} [0-9]{1,5}, [A-Z]{2}"}, **backend, **compiler);
  const OutputMarkup markup(*tokenizer);
  for (const auto& [name, choice] :
       {std::pair("tools, auto", ToolGrammarOptions::Choice::kAuto), std::pair("tools, required", ToolGrammarOptions::Choice::kRequired)})
    if (const auto spec = tool_call_grammar(tools, {.choice = choice}, markup, *tokenizer); spec.ok())
      measure(name, *spec, **backend, **compiler);
  return 0;
}

}  // namespace
}  // namespace baton::text

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "grammar-worker") return baton::text::run_grammar_worker();
  return baton::text::run(argc > 1 ? argv[1] : "tests/data/tokenizers/glm-like.json", argc > 2 ? std::atoi(argv[2]) : 0);
}
