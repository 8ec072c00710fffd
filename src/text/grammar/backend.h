// xgrammar for one vocabulary: compiles, and steps matchers. What grammar.h promises is built on this; the worker process uses it, too.
#pragma once

#include <memory>
#include <span>

#include "text/grammar.h"
#include "text/grammar/ffi.h"

namespace baton::text {

// Immutable; any thread. Outlives what it made.
class GrammarBackend {
 public:
  static Result<std::unique_ptr<GrammarBackend>> create(const GrammarVocabulary& vocabulary, const std::filesystem::path& library_folder);

  // Takes any time and memory, and may crash.
  Result<FfiValue> compile(const GrammarSpec& spec) const;
  Result<size_t> bytes(const FfiValue& grammar) const;

  Result<FfiValue> matcher(const FfiValue& grammar) const;
  // False if nothing is masked; the row is all ones then.
  Result<bool> fill(const FfiValue& matcher, std::span<int32_t> row) const;
  Result<bool> accept(const FfiValue& matcher, int32_t token) const;
  Status rollback(const FfiValue& matcher, size_t tokens) const;
  Result<FfiValue> fork(const FfiValue& matcher) const;
  Result<bool> terminated(const FfiValue& matcher) const;

  size_t row_words() const { return every_.size(); }
  std::span<const int32_t> every() const { return every_; }  // a row that allows each column that is a token
  std::span<const int32_t> stop_ids() const { return stop_ids_; }

 private:
  GrammarBackend() = default;
  const Ffi* ffi_ = nullptr;
  FfiValue compiler_;
  std::vector<int32_t> every_;
  std::vector<int32_t> stop_ids_;
  struct Methods {
    FfiMethod schema_to_ebnf, compile_json_schema, compile_regex, compile_ebnf, compile_structural_tag, memory_size, create_matcher, fill,
        accept, rollback, fork, is_terminated;
  } methods_{};
};

}  // namespace baton::text
