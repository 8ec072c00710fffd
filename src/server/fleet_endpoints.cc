// What other instances say to this one (fleet/post.h).
#include "server/endpoints.h"
#include "server/server.h"

namespace baton::server {
namespace {

fleet::Post::Answer answer_of(const std::shared_ptr<Call>& call) {
  return [call](int status, std::string body) {
    call->respond(status, std::move(body), status == 200 ? "application/octet-stream" : "text/plain; charset=utf-8");
  };
}

}  // namespace

void post_fleet_meet(Server& server, const std::shared_ptr<Call>& call) {
  server.options().fleet->meet(call->request().body, call->request().peer, answer_of(call));
}

void post_fleet_messages(Server& server, const std::shared_ptr<Call>& call) {
  server.options().fleet->messages(call->request().body, answer_of(call));
}

}  // namespace baton::server
