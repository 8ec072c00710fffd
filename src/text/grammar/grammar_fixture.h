// For tests with the grammar library: a compiler for the small tokenizer, and the main program, which is also the worker.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/grammar.h"
#include "text/grammar/worker.h"
#include "text/tokenizer.h"

namespace baton::text {

using Kind = GrammarSpec::Kind;

inline const Tokenizer& tokenizer() {
  static const Tokenizer instance = [] {
    auto loaded = Tokenizer::load(BATON_TEST_DATA "/tokenizers/glm-like.json");
    BATON_CHECK_MSG(loaded.ok(), "{}", loaded.error().message);
    return std::move(*loaded);
  }();
  return instance;
}

inline int32_t id_of(std::string_view token) { return tokenizer().id_of(token).value(); }

// For tests of what is let through: a sanitizer on a busy machine makes any mask slow.
inline GrammarCompilerOptions patient() { return {.limits = {.compile_ms = 60'000, .mask_us = 5'000'000}}; }

inline std::unique_ptr<GrammarCompiler> compiler(GrammarCompilerOptions options = patient()) {
  auto started = GrammarCompiler::start(
      GrammarVocabulary::of(tokenizer(), {id_of("<|endoftext|>"), id_of("<|user|>")}, tokenizer().id_limit() + 100), std::move(options));
  if (started.ok()) return std::move(*started);
  fmt::print("{}\n", started.error().message);
  return nullptr;
}

#define SKIP_WITHOUT_LIBRARY(compiler) \
  if ((compiler) == nullptr) GTEST_SKIP() << "structured output is not available"

inline GrammarCompiler::Compiled compiled(GrammarCompiler& c, Kind kind, const std::string& text) {
  const auto result = c.compile({kind, text}).get();
  EXPECT_TRUE(result.ok()) << text << "\n" << result.error().message;
  return result.ok() ? *result : nullptr;
}

inline int run_tests_or_worker(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "grammar-worker") return run_grammar_worker();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace baton::text
