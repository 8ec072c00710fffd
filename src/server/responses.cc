// POST /v1/responses. Nothing is stored.
#include "api/responses.h"

#include "api/responses_writer.h"
#include "server/endpoints.h"
#include "server/launch.h"
#include "server/server.h"

namespace baton::server {
namespace {

class ResponseStream final : public StreamedAnswer {
 public:
  ResponseStream(std::shared_ptr<Call> call, Metrics& metrics, api::ResponseHead head)
      : StreamedAnswer(std::move(call), metrics), writer_(std::move(head)) {}

  void on_news(int32_t, ChoiceNews& news, const api::Usage& usage) override {
    open();
    writer_.events(out_, news.events);
    if (news.finish) writer_.finish(out_, *news.finish, usage);
  }

 private:
  void write_beginning() override { writer_.start(out_); }
  void write_end(const api::Usage&) override {}
  void write_error(const api::ApiError& error) override { writer_.error(out_, error); }

  api::ResponseEventWriter writer_;
};

class ResponseWhole final : public WholeAnswer {
 public:
  ResponseWhole(std::shared_ptr<Call> call, api::ResponseHead head) : WholeAnswer(std::move(call), 1, 1), head_(std::move(head)) {}

 private:
  std::string body(const api::Usage& usage) override {
    std::string out;
    api::append_response_answer(out, head_, choices().front(), usage);
    return out;
  }
  const api::ResponseHead head_;
};

}  // namespace

void post_responses(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_responses(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    if (!server.check_model(*call, request->model)) return;
    call->ignored(request->ignored_fields);
    auto prepared = server.service().prepare(*request, server.caller(*call));
    if (!prepared.ok()) return refuse(server, *call, prepared.error());
    api::ResponseHead head{answer_head(server, *call, "resp_", request->model), request->echo};
    if (request->stream.on)
      return launch(server, call, std::move(*prepared), std::make_shared<ResponseStream>(call, server.metrics(), std::move(head)));
    launch(server, call, std::move(*prepared), std::make_shared<ResponseWhole>(call, std::move(head)));
  });
}

}  // namespace baton::server
