// How the endpoints that generate answer: a stream or a whole, and what starts them.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "api/answer.h"
#include "server/call.h"
#include "server/generation.h"

namespace baton::server {

class Server;

class Answer : public Receiver {
 public:
  // The request has been taken: a stream sends its head.
  virtual void begin() {}
};

// An answer while it is made. What an API writes, and when, is the subclass's: it appends to `out_`.
class StreamedAnswer : public Answer {
 public:
  StreamedAnswer(std::shared_ptr<Call> call, Metrics& metrics, int32_t prompts = 1)
      : call_(std::move(call)), metrics_(metrics), prompts_(prompts) {}

  void begin() final;
  void on_pause() final;
  void on_end(const api::ApiError* error, const api::Usage& usage) final;

 protected:
  void open() { begin(); }
  Call& call() { return *call_; }
  std::string out_;  // what is not written yet

 private:
  virtual void write_beginning() = 0;
  virtual void write_end(const api::Usage& usage) = 0;
  virtual void write_error(const api::ApiError& error) = 0;
  void flush();

  const std::shared_ptr<Call> call_;
  Metrics& metrics_;
  int32_t prompts_;  // that have not ended
  api::Usage usage_;
  std::mutex opening_;  // whoever comes first: the thread that launched it, or the lane's
  bool opened_ = false;
  bool closed_ = false;
  std::shared_ptr<http::EventStream> stream_;
};

// An answer that is kept until it is complete. One that would take more memory than is left for such answers ends with an error.
class WholeAnswer : public Answer {
 public:
  // All choices of all prompts.
  WholeAnswer(std::shared_ptr<Call> call, int32_t choices, int32_t prompts)
      : call_(std::move(call)), share_(call_->memory_share()), prompts_(prompts), choices_(static_cast<size_t>(choices)),
        prompt_logprobs_(choices_.size()) {}

  void on_prompt(int32_t first_choice, std::vector<api::TokenLogprobs> logprobs) final;
  void on_news(int32_t choice, ChoiceNews& news, const api::Usage& usage) final;
  void on_end(const api::ApiError* error, const api::Usage& usage) final;

 protected:
  std::span<const api::Choice> choices() const { return choices_; }
  // Of the prompt whose first choice this is; empty if they were not asked for.
  std::span<const api::TokenLogprobs> prompt_logprobs(int32_t first_choice = 0) const {
    return prompt_logprobs_[static_cast<size_t>(first_choice)];
  }
  Call& call() { return *call_; }

 private:
  // Adds the news of a choice to what body() is made of.
  virtual void keep(int32_t choice, ChoiceNews& news, const api::Usage& usage);
  virtual std::string body(const api::Usage& usage) = 0;
  bool take(int64_t bytes);

  const std::shared_ptr<Call> call_;
  std::shared_ptr<AnswerMemory::Share> share_;
  int32_t prompts_;
  bool closed_ = false;
  api::Usage usage_;
  std::vector<api::Choice> choices_;
  std::vector<std::vector<api::TokenLogprobs>> prompt_logprobs_;  // by first choice
};

// Compiles the form if there is one, and starts. On an error it answers with that.
void launch(Server& server, const std::shared_ptr<Call>& call, Prepared prepared, std::shared_ptr<Answer> answer);
// Several prompts with one answer; prompt i has the choices from i * choices on.
void launch(Server& server, const std::shared_ptr<Call>& call, std::vector<Prepared> prepared, std::shared_ptr<Answer> answer);

// Answers with an error about the request, and counts it.
void refuse(Server& server, Call& call, const api::ApiError& error);
// `prefix` as the API has it: "chatcmpl-".
api::AnswerHead answer_head(const Server& server, const Call& call, std::string_view prefix, const std::string& model);

}  // namespace baton::server
