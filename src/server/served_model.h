// The model as requests see it: names, tokeniser, chat template, markup, limits, and what is meant by what a request leaves out.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/grammar.h"
#include "text/parse/markers.h"
#include "text/tokenizer.h"

namespace baton::server {

struct ServedModelOptions {
  std::filesystem::path folder;
  std::vector<std::string> names;       // empty: the folder's name
  std::filesystem::path tokenizer;      // empty: the folder
  std::filesystem::path chat_template;  // empty: the folder's; it may have none
  std::vector<int32_t> eos_tokens;      // empty: those that GLM models end messages with, as far as the tokeniser has them
  int64_t columns = 0;                  // width of the logits
  int64_t context_tokens = 0;           // or limit_context(), where it is known later
  int grammar_workers = 1;
};

// What generation_config.json says for requests that do not.
struct SamplingDefaults {
  float temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  int32_t top_k = 0;
};

// Immutable but for the compiler of grammars, which starts when it is first needed. Any thread.
class ServedModel {
 public:
  static Result<std::unique_ptr<ServedModel>> load(const ServedModelOptions& options);

  const std::string& name() const { return options_.names.front(); }
  const std::vector<std::string>& names() const { return options_.names; }
  bool has_name(std::string_view name) const;
  const std::filesystem::path& folder() const { return options_.folder; }
  int64_t created() const { return created_; }  // seconds since 1970

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const text::OutputMarkup& markup() const { return markup_; }
  const text::ChatTemplate* chat() const { return chat_ ? &*chat_ : nullptr; }
  const std::vector<int32_t>& eos_tokens() const { return options_.eos_tokens; }
  const SamplingDefaults& defaults() const { return defaults_; }
  int64_t context_tokens() const { return options_.context_tokens; }
  int64_t columns() const { return options_.columns; }
  // Before it is served.
  void limit_context(int64_t tokens) { options_.context_tokens = tokens; }
  // Ids below the tokenizer's last that no token has: they are never drawn. The engine knows where the ids end.
  const std::vector<int32_t>& padding() const { return padding_; }

  // Starts the compiler at the first call. Fails where its library is missing, with a message for the client.
  Result<text::GrammarCompiler*> grammars() const;
  text::GrammarCompiler::Counters grammar_counters() const;

 private:
  ServedModel(ServedModelOptions options, text::Tokenizer tokenizer)
      : options_(std::move(options)), tokenizer_(std::move(tokenizer)), markup_(tokenizer_) {}
  Status read_defaults();

  ServedModelOptions options_;
  text::Tokenizer tokenizer_;
  text::OutputMarkup markup_;
  std::optional<text::ChatTemplate> chat_;
  SamplingDefaults defaults_;
  std::vector<int32_t> padding_;
  int64_t created_ = 0;

  mutable std::mutex mutex_;
  mutable std::unique_ptr<text::GrammarCompiler> grammars_;
};

}  // namespace baton::server
