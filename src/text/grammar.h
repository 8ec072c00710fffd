// Structured output: which tokens may come next, so that what a model writes keeps to a JSON schema, a pattern, a grammar, or a function's
// arguments. The work is done by xgrammar, which is loaded at run time (grammar/ffi.h says from where).
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::text {

class Tokenizer;

struct GrammarSpec {
  enum class Kind : uint8_t {
    kJsonSchema,     // text is the schema
    kJsonObject,     // any JSON object; no text
    kRegex,          // text is a pattern that the whole output matches
    kEbnf,           // text is a grammar in EBNF whose first rule is `root`
    kStructuralTag,  // text is a structural tag of xgrammar, in JSON; grammar/tool_grammar.h makes those for tool calls
  };
  Kind kind = Kind::kJsonObject;
  std::string text;
  bool operator==(const GrammarSpec&) const = default;
};

// What a model can emit. Text of a grammar is spelled with ordinary tokens only; an added token is never part of it, and has to be named by
// id in a structural tag or in EBNF (`Token(7)`).
struct GrammarVocabulary {
  // `columns` is the width of the logits; columns beyond the tokenizer's ids are never allowed. `stop_ids` end the output.
  static GrammarVocabulary of(const Tokenizer& tokenizer, std::vector<int32_t> stop_ids, int32_t columns);

  std::vector<std::string> tokens;  // bytes, by id
  std::vector<int32_t> stop_ids;
};

// Every one of these is a bound; beyond it a grammar is refused with a message that names it.
struct GrammarLimits {
  size_t spec_bytes = size_t{256} << 10;
  int64_t compile_ms = 5000;                 // of one compilation, and of trying out its masks
  size_t compile_bytes = size_t{512} << 20;  // address space of the process that compiles
  int64_t mask_us = 20000;                   // processor time of one mask, while it is tried out and later on
  size_t grammar_bytes = size_t{128} << 20;
};

struct GrammarCompilerOptions {
  // The program that tries grammars out, with its arguments: it has to call run_grammar_worker (grammar/worker.h).
  std::vector<std::string> worker_command = {"/proc/self/exe", "grammar-worker"};
  std::filesystem::path library_folder{};  // empty: see Ffi::folders
  int workers = 2;                         // compilations at once
  size_t most_waiting = 64;                // beyond that, compile() answers that it is busy
  size_t cache_bytes = size_t{512} << 20;
  GrammarLimits limits{};
};

class GrammarBackend;

// Immutable; any number of matchers on any threads share it.
class CompiledGrammar {
 public:
  struct State;
  explicit CompiledGrammar(std::unique_ptr<State> state);
  ~CompiledGrammar();
  size_t bytes() const;

 private:
  friend class GrammarMatcher;
  std::unique_ptr<State> state_;
};

// Compiles off the caller's thread. A grammar comes from a client, and compiling it may take any time and memory, or crash; and a running
// compilation cannot be stopped. So each one first runs in a worker process of its own, under limits of time and memory, where it is also
// tried out; a worker that exceeds them is killed, which costs nobody else anything. Only what passed is compiled in this process.
// Functions may be called from any thread.
class GrammarCompiler {
 public:
  using Compiled = std::shared_ptr<const CompiledGrammar>;
  using Future = std::shared_future<Result<Compiled>>;

  // Fails where the library is missing, with a message for the client: structured output is not available.
  static Result<std::unique_ptr<GrammarCompiler>> start(GrammarVocabulary vocabulary, GrammarCompilerOptions options = {});
  ~GrammarCompiler();  // what still waits is answered with an error

  // Errors: kInvalid for a grammar that is wrong, kUnsupported for one that the output would not be held to, kExhausted for a limit that it
  // exceeds: the client's to change (400). kIo: not now, since too many wait or no worker runs (503). Equal grammars are compiled once, and
  // kept while the cache has room.
  Future compile(GrammarSpec spec);

  struct Counters {
    int64_t compiled = 0, refused = 0, cache_hits = 0, busy = 0, workers_killed = 0;
    size_t cached_bytes = 0, waiting = 0;
  };
  Counters counters() const;

 private:
  struct State;
  explicit GrammarCompiler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Where one choice of one request stands in its grammar. Belongs to one thread at a time. Rows have a bit for each column of the logits,
// set where the token may come next: bit i % 32 of word i / 32.
class GrammarMatcher {
 public:
  struct Options {
    // Set while a model reasons first: the grammar begins after this token (</think>). Until then every token may come, except stop ids
    // and `not_before`: markers that would begin something else, such as <tool_call>.
    std::optional<int32_t> begins_after{};
    std::vector<int32_t> not_before{};
  };
  static Result<GrammarMatcher> create(GrammarCompiler::Compiled grammar, Options options);
  static Result<GrammarMatcher> create(GrammarCompiler::Compiled grammar) { return create(std::move(grammar), {}); }

  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  size_t row_words() const;

  // Errors of the following: the library fails on this grammar, or a mask took longer than GrammarLimits::mask_us (some patterns become
  // more ambiguous with every token). The request has to end with an error then, never go on unmasked.
  // Fills a row. False if every token may come (nothing has to be masked).
  Result<bool> fill(std::span<int32_t> row);
  // False if the token may not come here; nothing changes then.
  Result<bool> accept(int32_t token);
  // Takes back the last `tokens` accepted ones; also across the beginning and the end of the grammar.
  Status rollback(size_t tokens);
  // Rows for a draft of k tokens: row i is what may come after the first i of them, k + 1 rows in all. Leaves the state as it was. Returns
  // how many rows count: those behind a draft token that may not come, or that ended the output, allow everything and are of no use.
  Result<size_t> fill_along(std::span<const int32_t> draft, std::span<int32_t> rows);
  Result<GrammarMatcher> fork() const;

  bool begun() const;       // the grammar is in force
  bool terminated() const;  // a stop id was accepted
  size_t accepted() const;  // tokens so far

 private:
  Status in_time(int64_t begin_us) const;
  struct State;
  explicit GrammarMatcher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace baton::text
