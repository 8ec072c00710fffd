// GET /v1/models and /v1/models/{name}.
#include "api/tokenize.h"
#include "server/endpoints.h"
#include "server/server.h"

namespace baton::server {
namespace {

api::ModelCard card_of(const ServedModel& model, std::string_view name) {
  return {.id = std::string(name), .root = model.name(), .created = model.created(), .max_model_len = model.context_tokens()};
}

// Clients write the slash of a name such as org/model as %2F. What is no escape stays as it is.
std::string unescape(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    out += escape ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return out;
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
  const std::string name = unescape(std::string_view(call->request().path).substr(kPath.size()));
  if (!server.check_model(*call, name)) return;
  std::string out;
  api::append_model(out, card_of(server.service().model(), name));
  call->respond(200, std::move(out));
}

}  // namespace baton::server
