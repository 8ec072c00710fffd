// POST /tokenize, /detokenize and /render, and GET /v1/models: requests and answers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat.h"
#include "api/error.h"
#include "api/limits.h"

namespace baton::api {

// A text, or a conversation: then `text` is not set, and the ChatRequest says what to render. /render takes conversations only.
struct TokenizeRequest : ChatRequest {
  std::optional<std::string> text{};
  bool add_special_tokens = false;
  bool return_token_strs = false;
};
ApiResult<TokenizeRequest> parse_tokenize(std::string_view body, const ParseLimits& limits);
ApiResult<TokenizeRequest> parse_render(std::string_view body, const ParseLimits& limits);

struct DetokenizeRequest : Request {
  std::vector<int32_t> tokens{};
  bool skip_special = false;
};
ApiResult<DetokenizeRequest> parse_detokenize(std::string_view body, const ParseLimits& limits);

// `strings` are the bytes of each token, empty if they were not asked for.
void append_tokens(std::string& out, std::span<const int32_t> ids, std::span<const std::string_view> strings, int64_t max_model_len);
void append_detokenized(std::string& out, std::string_view text);

struct Untrusted {
  size_t begin, end;  // bytes of the prompt that came from users and tools
};
void append_rendered(std::string& out, std::string_view prompt, std::span<const int32_t> ids, std::span<const Untrusted> untrusted);

struct ModelCard {
  std::string id;
  std::string root{};  // where it was loaded from, as far as clients may know
  int64_t created = 0;
  int64_t max_model_len = 0;
};
// One body that clients of both OpenAI's and Anthropic's API read.
void append_models(std::string& out, std::span<const ModelCard> models);
// GET /v1/models/{id}
void append_model(std::string& out, const ModelCard& model);

}  // namespace baton::api
