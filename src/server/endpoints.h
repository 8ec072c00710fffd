// The endpoints: one function each, in a file of its own kind. Called on a listener's thread, so that none may wait.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "server/call.h"

namespace baton::server {

class Server;

using Endpoint = void (*)(Server& server, const std::shared_ptr<Call>& call);

enum class Access : uint8_t { kOpen, kKey, kAdmin, kFleet };  // kFleet: other instances, which speak to each other

struct Route {
  std::string_view method;
  std::string_view path;  // with a '/' at its end: whatever begins so, but for "/" itself
  Endpoint endpoint;
  Access access = Access::kKey;
  bool generates = false;  // tokens: not at a prefill instance
};
std::span<const Route> all_routes();

void get_models(Server& server, const std::shared_ptr<Call>& call);
void get_model(Server& server, const std::shared_ptr<Call>& call);
void post_completions(Server& server, const std::shared_ptr<Call>& call);
void post_messages(Server& server, const std::shared_ptr<Call>& call);
void post_count_tokens(Server& server, const std::shared_ptr<Call>& call);
void post_responses(Server& server, const std::shared_ptr<Call>& call);
void post_generate(Server& server, const std::shared_ptr<Call>& call);
void post_tokenize(Server& server, const std::shared_ptr<Call>& call);
void post_detokenize(Server& server, const std::shared_ptr<Call>& call);
void post_render(Server& server, const std::shared_ptr<Call>& call);
void post_chat_completions(Server& server, const std::shared_ptr<Call>& call);

void get_page(Server& server, const std::shared_ptr<Call>& call);
void get_livez(Server& server, const std::shared_ptr<Call>& call);
void get_readyz(Server& server, const std::shared_ptr<Call>& call);
void get_health_generate(Server& server, const std::shared_ptr<Call>& call);
void get_metrics(Server& server, const std::shared_ptr<Call>& call);
void get_server_info(Server& server, const std::shared_ptr<Call>& call);
void get_version(Server& server, const std::shared_ptr<Call>& call);
void post_flush_cache(Server& server, const std::shared_ptr<Call>& call);

void post_fleet_meet(Server& server, const std::shared_ptr<Call>& call);
void post_fleet_messages(Server& server, const std::shared_ptr<Call>& call);

}  // namespace baton::server
