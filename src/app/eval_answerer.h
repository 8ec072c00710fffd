// Who answers the questions of `baton eval`: an engine in this process, or a server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "app/model_flags.h"
#include "base/result.h"
#include "evaluate/question_set.h"
#include "evaluate/report.h"
#include "speculate/metrics.h"

namespace baton::app {

// How each question is asked.
struct AskOptions {
  int32_t parallel = 16;  // questions under way at once
  int64_t max_tokens = 512;
  float temperature = 0;
  float top_p = 1;
  uint64_t seed = 0;
  std::string reasoning_effort;  // empty: as the template has it
};

// The body of a chat completion that asks a question of the model of that name.
std::string request_body(const evaluate::Question& question, const AskOptions& ask, const std::string& model);

class Answerer {
 public:
  virtual ~Answerer() = default;
  // Fills outcomes[i] for questions[i]: the answer and its figures, or `failure`. `ended` is called on the calling thread, now and then,
  // with the number of questions that are done. An error means that going on makes no sense.
  virtual Status answer(std::span<const evaluate::Question> questions, std::span<evaluate::Outcome> outcomes,
                        const std::function<void(int64_t done)>& ended) = 0;
  // How drafts fared; without blocks where nothing was drafted, or nobody knows.
  virtual speculate::Metrics speculation() const { return {}; }
};

// A checkpoint's folder with its tokenizer and chat template, on this machine's CPU.
std::unique_ptr<Answerer> local_answerer(std::string model, const ModelFlags& flags, const AskOptions& ask);

struct ServerOptions {
  std::string base_url;
  std::string model;    // empty: the first that the server names
  std::string api_key;  // empty: none
  int64_t timeout_s = 600;
};
// Any server that speaks OpenAI's chat completions.
std::unique_ptr<Answerer> server_answerer(ServerOptions options, const AskOptions& ask);

}  // namespace baton::app
