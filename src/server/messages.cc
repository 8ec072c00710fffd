// POST /v1/messages and /v1/messages/count_tokens of the Anthropic API.
#include "api/messages.h"

#include "api/messages_writer.h"
#include "server/endpoints.h"
#include "server/launch.h"
#include "server/server.h"

namespace baton::server {
namespace {

class MessageStream final : public StreamedAnswer {
 public:
  MessageStream(std::shared_ptr<Call> call, Metrics& metrics, const api::AnswerHead& head, int64_t prompt_tokens)
      : StreamedAnswer(std::move(call), metrics), writer_(head), prompt_tokens_(prompt_tokens) {}

  void on_news(int32_t, ChoiceNews& news, const api::Usage& usage) override {
    open();
    writer_.events(out_, news.events);
    if (news.finish) writer_.finish(out_, *news.finish, usage);
  }

 private:
  void write_beginning() override {
    api::Usage usage;
    usage.prompt = prompt_tokens_;
    writer_.start(out_, usage);
  }
  void write_end(const api::Usage&) override {}
  void write_error(const api::ApiError& error) override { writer_.error(out_, error); }

  api::MessageEventWriter writer_;
  const int64_t prompt_tokens_;
};

class MessageWhole final : public WholeAnswer {
 public:
  MessageWhole(std::shared_ptr<Call> call, api::AnswerHead head) : WholeAnswer(std::move(call), 1, 1), head_(std::move(head)) {}

 private:
  std::string body(const api::Usage& usage) override {
    std::string out;
    api::append_message_answer(out, head_, choices().front(), usage);
    return out;
  }
  const api::AnswerHead head_;
};

}  // namespace

void post_messages(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_messages(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    if (!server.check_model(*call, request->model)) return;
    call->ignored(request->ignored_fields);
    auto prepared = server.service().prepare(*request, server.caller(*call));
    if (!prepared.ok()) return refuse(server, *call, prepared.error());
    const api::AnswerHead head = answer_head(server, *call, "msg_", request->model);
    const auto prompt_tokens = static_cast<int64_t>(prepared->spec.prompt.size());
    if (request->stream.on)
      return launch(server, call, std::move(*prepared), std::make_shared<MessageStream>(call, server.metrics(), head, prompt_tokens));
    launch(server, call, std::move(*prepared), std::make_shared<MessageWhole>(call, head));
  });
}

void post_count_tokens(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_count_tokens(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    if (!server.check_model(*call, request->model)) return;
    call->ignored(request->ignored_fields);
    auto ids = server.service().prompt_of(*request);
    if (!ids.ok()) return refuse(server, *call, ids.error());
    std::string out;
    api::append_token_count(out, static_cast<int64_t>(ids->size()));
    call->respond(200, std::move(out));
  });
}

}  // namespace baton::server
