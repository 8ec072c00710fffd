// POST /tokenize, /detokenize and /render: what the model would read, without reading it.
#include "api/tokenize.h"

#include "server/endpoints.h"
#include "server/launch.h"
#include "server/server.h"

namespace baton::server {

void post_tokenize(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_tokenize(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    if (!server.check_model(*call, request->model)) return;
    call->ignored(request->ignored_fields);
    const Service& service = server.service();
    const ServedModel& model = service.model();
    auto ids = request->text ? service.encode({.text = *request->text, .ids = {}}, request->add_special_tokens, "prompt")
                             : service.prompt_of(*request);
    if (!ids.ok()) return refuse(server, *call, ids.error());
    std::vector<std::string_view> strings;
    if (request->return_token_strs)
      for (const int32_t id : *ids) strings.push_back(model.tokenizer().bytes(id));
    std::string out;
    api::append_tokens(out, *ids, strings, model.context_tokens());
    call->respond(200, std::move(out));
  });
}

void post_detokenize(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_detokenize(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    if (!server.check_model(*call, request->model)) return;
    call->ignored(request->ignored_fields);
    std::string out;
    api::append_detokenized(out, server.service().model().tokenizer().decode(request->tokens, request->skip_special));
    call->respond(200, std::move(out));
  });
}

void post_render(Server& server, const std::shared_ptr<Call>& call) {
  server.prepare(call, [&server, call] {
    auto request = api::parse_render(call->request().body, server.parse_limits());
    if (!request.ok()) return refuse(server, *call, request.error());
    if (!server.check_model(*call, request->model)) return;
    call->ignored(request->ignored_fields);
    const auto rendered = server.service().render(*request);
    if (!rendered.ok()) return refuse(server, *call, rendered.error());
    const auto ids = server.service().encode(*rendered);
    if (!ids.ok()) return refuse(server, *call, ids.error());
    std::vector<api::Untrusted> untrusted;
    for (const text::TextRange& r : rendered->untrusted) untrusted.push_back({r.begin, r.end});
    std::string out;
    api::append_rendered(out, rendered->text, *ids, untrusted);
    call->respond(200, std::move(out));
  });
}

}  // namespace baton::server
