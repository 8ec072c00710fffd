// POST /v1/completions: the answer, whole or in chunks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer.h"
#include "api/error.h"

namespace baton::api {

// As ChatChunkWriter, but a choice is text and has no role.
class CompletionChunkWriter {
 public:
  struct Options {
    int32_t choices = 1;
    bool logprobs = false;
    bool include_usage = false;
    bool continuous_usage = false;
  };
  CompletionChunkWriter(const AnswerHead& head, const Options& options);

  // A chunk, unless there is neither text nor log-probabilities.
  void text(std::string& out, int32_t choice, std::string_view text, std::span<const TokenLogprobs> logprobs = {}, const Usage& usage = {});
  void finish(std::string& out, int32_t choice, const Finish& finish, const Usage& usage = {});
  void usage(std::string& out, const Usage& usage);
  void done(std::string& out);
  void error(std::string& out, const ApiError& error);

 private:
  void chunk(std::string& out, int32_t choice, std::string_view text, std::span<const TokenLogprobs> logprobs, const Finish* finish,
             const Usage& usage);

  std::string prefix_;
  Options options_;
  std::vector<int64_t> offsets_;  // by choice: characters of the tokens so far
};

struct CompletionChoice {
  std::string text{};
  Finish finish{};
  std::vector<TokenLogprobs> logprobs{};
  std::vector<TokenLogprobs> prompt_logprobs{};  // in the shape of vLLM; empty: none
};

void append_completion_answer(std::string& out, const AnswerHead& head, std::span<const CompletionChoice> choices, const Usage& usage,
                              bool logprobs);

}  // namespace baton::api
