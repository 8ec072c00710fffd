// Pieces that the answers of OpenAI's chat and completion endpoints share; some are in those of other APIs, too.
#pragma once

#include <span>
#include <string>

#include "api/answer.h"

namespace baton::api {

// {"id":..., "object":..., "created":..., "model":..., "system_fingerprint":..., without the closing brace.
void append_head(std::string& out, const AnswerHead& head, std::string_view object);
// The object of `usage`.
void append_usage(std::string& out, const Usage& usage);
// A member behind others, as all APIs have it; nothing if times were not asked for.
void append_timing(std::string& out, const Usage& usage);
// An entry of `logprobs.content`.
void append_logprob_entry(std::string& out, const TokenLogprobs& token);
// The list of `prompt_logprobs`, by token id, as vLLM has it.
void append_prompt_logprobs(std::string& out, std::span<const TokenLogprobs> tokens);
// What stands for probability zero.
float shown_logprob(float logprob);
// "finish_reason":..., and "stop_reason" where a stop string or token was met.
void append_finish(std::string& out, const Finish& finish);

struct ChunkUsage {
  bool include;     // `usage` is there, null
  bool continuous;  // or what was used so far
};
// The end of a streamed chunk with one choice: why that ended, or null, and the usage.
void append_chunk_end(std::string& out, const Finish* finish, ChunkUsage shown, const Usage& usage);

}  // namespace baton::api
