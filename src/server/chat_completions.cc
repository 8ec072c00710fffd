// POST /v1/chat/completions.
#include <mutex>

#include "api/chat.h"
#include "api/chat_writer.h"
#include "server/endpoints.h"
#include "server/launch.h"
#include "server/server.h"

namespace baton::server {
namespace {

class ChatStream final : public StreamedAnswer {
 public:
  ChatStream(std::shared_ptr<Call> call, Metrics& metrics, const api::AnswerHead& head, const api::ChatChunkWriter::Options& options)
      : StreamedAnswer(std::move(call), metrics), writer_(head, options), options_(options) {}

  void on_news(int32_t choice, ChoiceNews& news, const api::Usage& usage) override {
    open();
    writer_.events(out_, choice, news.events, news.logprobs, usage);
    if (news.finish) writer_.finish(out_, choice, *news.finish, usage);
  }

 private:
  void write_beginning() override {
    for (int32_t c = 0; c < options_.choices; ++c) writer_.role(out_, c);
  }
  void write_end(const api::Usage& usage) override {
    if (options_.include_usage) writer_.usage(out_, usage);
    writer_.done(out_);
  }
  void write_error(const api::ApiError& error) override { writer_.error(out_, error); }

  api::ChatChunkWriter writer_;
  const api::ChatChunkWriter::Options options_;
};

class ChatWhole final : public WholeAnswer {
 public:
  ChatWhole(std::shared_ptr<Call> call, api::AnswerHead head, int32_t choices, bool logprobs)
      : WholeAnswer(std::move(call), choices, 1), head_(std::move(head)), logprobs_(logprobs) {}

 private:
  std::string body(const api::Usage& usage) override {
    std::string out;
    api::append_chat_answer(out, head_,
                            {.choices = choices(), .usage = usage, .logprobs = logprobs_, .prompt_logprobs = prompt_logprobs()});
    return out;
  }
  const api::AnswerHead head_;
  const bool logprobs_;
};

}  // namespace

void post_chat_completions(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_chat(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    if (!server.check_model(*call, request->model)) return;
    call->ignored(request->ignored_fields);
    auto prepared = server.service().prepare(*request, server.caller(*call));
    if (!prepared.ok()) return refuse(server, *call, prepared.error());

    api::AnswerHead head = answer_head(server, *call, "chatcmpl-", request->model);
    const int32_t choices = request->sampling.n;
    const bool logprobs = request->sampling.logprobs >= 0;
    if (request->stream.on) {
      const api::ChatChunkWriter::Options options{.choices = choices,
                                                  .logprobs = logprobs,
                                                  .include_usage = request->stream.include_usage,
                                                  .continuous_usage = request->stream.continuous_usage};
      return launch(server, call, std::move(*prepared), std::make_shared<ChatStream>(call, server.metrics(), head, options));
    }
    launch(server, call, std::move(*prepared), std::make_shared<ChatWhole>(call, std::move(head), choices, logprobs));
  });
}

}  // namespace baton::server
