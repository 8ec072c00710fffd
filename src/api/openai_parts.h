// Pieces that the answers of OpenAI's chat and completion endpoints share.
#pragma once

#include <span>
#include <string>

#include "api/answer.h"

namespace baton::api {

// The object of `usage`.
void append_usage(std::string& out, const Usage& usage);
// An entry of `logprobs.content`.
void append_logprob_entry(std::string& out, const TokenLogprobs& token);
// What stands for probability zero.
float shown_logprob(float logprob);
// "finish_reason":..., and "stop_reason" where a stop string or token was met.
void append_finish(std::string& out, const Finish& finish);

}  // namespace baton::api
