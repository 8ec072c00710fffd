// The table of endpoints.
#include "server/endpoints.h"

namespace baton::server {

std::span<const Route> all_routes() {
  static constexpr Route kRoutes[] = {
      {"GET", "/v1/models", get_models},
      {"GET", "/v1/models/", get_model},
      {"POST", "/v1/chat/completions", post_chat_completions, Access::kKey, true},
      {"POST", "/v1/completions", post_completions, Access::kKey, true},
      {"POST", "/v1/messages", post_messages, Access::kKey, true},
      {"POST", "/v1/messages/count_tokens", post_count_tokens, Access::kKey},
      {"POST", "/v1/responses", post_responses, Access::kKey, true},
      {"POST", "/generate", post_generate, Access::kKey, true},
      {"POST", "/tokenize", post_tokenize},
      {"POST", "/detokenize", post_detokenize},
      {"POST", "/render", post_render},
      {"GET", "/", get_page, Access::kOpen},
      {"GET", "/page/", get_page, Access::kOpen},
      {"GET", "/livez", get_livez, Access::kOpen},
      {"GET", "/readyz", get_readyz, Access::kOpen},
      {"GET", "/health", get_readyz, Access::kOpen},
      {"GET", "/health_generate", get_health_generate, Access::kKey, true},
      {"GET", "/metrics", get_metrics, Access::kOpen},
      {"GET", "/version", get_version, Access::kOpen},
      {"GET", "/server_info", get_server_info},
      {"POST", "/flush_cache", post_flush_cache, Access::kAdmin},
      {"POST", "/fleet/meet", post_fleet_meet, Access::kFleet},
      {"POST", "/fleet/messages", post_fleet_messages, Access::kFleet},
  };
  return kRoutes;
}

}  // namespace baton::server
