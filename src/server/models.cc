// GET /v1/models and /v1/models/{name}.
#include "api/tokenize.h"
#include "server/endpoints.h"
#include "server/server.h"

namespace baton::server {
namespace {

api::ModelCard card_of(const ServedModel& model, std::string_view name) {
  return {.id = std::string(name), .root = model.name(), .created = model.created(), .max_model_len = model.context_tokens()};
}

}  // namespace

void get_models(Server& server, const std::shared_ptr<Call>& call) {
  const ServedModel& model = server.service().model();
  std::vector<api::ModelCard> cards;
  for (const std::string& name : model.names()) cards.push_back(card_of(model, name));
  std::string out;
  api::append_models(out, cards);
  call->respond(200, std::move(out));
}

void get_model(Server& server, const std::shared_ptr<Call>& call) {
  constexpr std::string_view kPath = "/v1/models/";
  const std::string name = call->request().path.substr(kPath.size());
  if (!server.check_model(*call, name)) return;
  std::string out;
  api::append_model(out, card_of(server.service().model(), name));
  call->respond(200, std::move(out));
}

}  // namespace baton::server
