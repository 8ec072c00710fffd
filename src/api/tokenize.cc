#include "api/tokenize.h"

#include <fmt/chrono.h>

#include "api/conversation.h"
#include "api/endpoints.h"
#include "api/json_text.h"
#include "api/prompt_fields.h"

namespace baton::api {
namespace {

TokenizeRequest& tokenize(Request& out) { return static_cast<TokenizeRequest&>(out); }
DetokenizeRequest& detokenize(Request& out) { return static_cast<DetokenizeRequest&>(out); }

void read_text(FieldReader& in, Request& out) {
  if (tokenize(out).text) return in.wrong("is a second text beside another field's; give one of them");
  if (const auto text = in.text(in.limits().body_bytes)) tokenize(out).text = std::string(*text);
}

constexpr Field kTextFields[] = {
    {.name = "prompt", .type = "string", .what = "a text; or give `messages`, and what else a chat request may have", .read = read_text},
    {.name = "text", .type = "string", .what = "SGLang's name of `prompt`", .read = read_text},
    {.name = "content", .type = "string", .what = "llama.cpp's name of `prompt`", .read = read_text},
};

constexpr Field kFields[] = {
    {.name = "model",
     .type = "string",
     .what = "a name that GET /v1/models lists; not given: the model that is served",
     .read = [](FieldReader& in, Request& out) { in.into(out.model); }},
    {.name = "add_special_tokens",
     .type = "boolean",
     .what = "what the tokenizer puts around a text",
     .read = [](FieldReader& in, Request& out) { in.into(tokenize(out).add_special_tokens); }},
    {.name = "add_special",
     .type = "boolean",
     .what = "llama.cpp's name of `add_special_tokens`",
     .same_as = "add_special_tokens",
     .read = [](FieldReader& in, Request& out) { in.into(tokenize(out).add_special_tokens); }},
    {.name = "return_token_strs",
     .type = "boolean",
     .what = "the text of each token as well",
     .read = [](FieldReader& in, Request& out) { in.into(tokenize(out).return_token_strs); }},
};

constexpr Field kDetokenizeFields[] = {
    {.name = "model",
     .type = "string",
     .what = "a name that GET /v1/models lists; not given: the model that is served",
     .read = [](FieldReader& in, Request& out) { in.into(out.model); }},
    {.name = "tokens",
     .type = "list of ids",
     .what = "what to put together",
     .required = true,
     .read =
         [](FieldReader& in, Request& out) {
           if (in.value().is_array() && in.value().get_array().empty()) return;
           std::vector<Prompt> prompts;
           read_prompts(in, prompts);
           if (in.failed()) return;
           if (prompts.size() != 1 || prompts[0].is_text()) return in.wrong("must be a list of token ids");
           detokenize(out).tokens = std::move(prompts[0].ids);
         }},
    {.name = "skip_special_tokens",
     .type = "boolean",
     .what = "true: special tokens do not show",
     .read = [](FieldReader& in, Request& out) { in.into(detokenize(out).skip_special); }},
};

ApiResult<TokenizeRequest> parse_conversation(const Body& body, FieldGroups groups, const ParseLimits& limits) {
  TokenizeRequest r;
  Reading reading{limits, r.ignored_fields};
  read_fields(body, groups, reading, r);
  check_conversation(reading, r);
  if (reading.error) return *std::move(reading.error);
  return r;
}

void append_ids(std::string& out, std::span<const int32_t> ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_int(out, ids[i]);
  }
  out += ']';
}

}  // namespace

std::vector<std::span<const Field>> tokenize_groups() { return {kTextFields, kFields}; }
std::vector<std::span<const Field>> detokenize_groups() { return {kDetokenizeFields}; }

ApiResult<TokenizeRequest> parse_tokenize(std::string_view text, const ParseLimits& limits) {
  auto body = Body::parse(text, limits);
  if (!body.ok()) return body.error();
  for (const Body::Member& m : body->members) {
    if (m.name != "messages") continue;
    for (const Body::Member& other : body->members)
      for (const Field& f : kTextFields)
        if (f.name == other.name && !other.value->is_null() && !m.value->is_null())
          return ApiError::field(std::string(other.name), "is a text beside `messages`; give one of them");
    std::vector<std::span<const Field>> groups = {kFields};
    for (const auto group : chat_groups()) groups.push_back(group);
    return parse_conversation(*body, groups, limits);
  }
  TokenizeRequest r;
  Reading reading{limits, r.ignored_fields};
  read_fields(*body, tokenize_groups(), reading, r);
  if (!reading.error && !r.text) reading.error = ApiError::field("prompt", "is missing; give it, or `messages`");
  if (reading.error) return *std::move(reading.error);
  return r;
}

ApiResult<TokenizeRequest> parse_render(std::string_view text, const ParseLimits& limits) {
  auto body = Body::parse(text, limits);
  if (!body.ok()) return body.error();
  return parse_conversation(*body, chat_groups(), limits);
}

ApiResult<DetokenizeRequest> parse_detokenize(std::string_view text, const ParseLimits& limits) {
  auto body = Body::parse(text, limits);
  if (!body.ok()) return body.error();
  DetokenizeRequest r;
  Reading reading{limits, r.ignored_fields};
  read_fields(*body, detokenize_groups(), reading, r);
  if (reading.error) return *std::move(reading.error);
  return r;
}

void append_tokens(std::string& out, std::span<const int32_t> ids, std::span<const std::string_view> strings, int64_t max_model_len) {
  out += R"({"tokens":)";
  append_ids(out, ids);
  out += R"(,"count":)";
  append_int(out, static_cast<int64_t>(ids.size()));
  out += R"(,"max_model_len":)";
  append_int(out, max_model_len);
  out += R"(,"token_strs":)";
  if (strings.empty()) {
    out += "null}";
    return;
  }
  out += '[';
  for (size_t i = 0; i < strings.size(); ++i) {
    if (i > 0) out += ',';
    append_string(out, strings[i]);
  }
  out += "]}";
}

void append_detokenized(std::string& out, std::string_view text) {
  // vLLM's name of it, and SGLang's.
  out += R"({"prompt":)";
  append_string(out, text);
  out += R"(,"text":)";
  append_string(out, text);
  out += '}';
}

void append_rendered(std::string& out, std::string_view prompt, std::span<const int32_t> ids, std::span<const Untrusted> untrusted) {
  out += R"({"prompt":)";
  append_string(out, prompt);
  out += R"(,"tokens":)";
  append_ids(out, ids);
  out += R"(,"count":)";
  append_int(out, static_cast<int64_t>(ids.size()));
  out += R"(,"untrusted":[)";
  for (size_t i = 0; i < untrusted.size(); ++i) {
    if (i > 0) out += ',';
    out += '[';
    append_int(out, static_cast<int64_t>(untrusted[i].begin));
    out += ',';
    append_int(out, static_cast<int64_t>(untrusted[i].end));
    out += ']';
  }
  out += "]}";
}

void append_model(std::string& out, const ModelCard& model) {
  out += R"({"id":)";
  append_string(out, model.id);
  out += R"(,"object":"model","created":)";
  append_int(out, model.created);
  out += R"(,"owned_by":"baton","root":)";
  append_string_or_null(out, model.root);
  out += R"(,"parent":null,"max_model_len":)";
  append_int(out, model.max_model_len);
  // Anthropic's names.
  out += R"(,"type":"model","lifecycle":"active","max_input_tokens":)";
  append_int(out, model.max_model_len);
  out += R"(,"display_name":)";
  append_string(out, model.id);
  out += fmt::format(R"(,"created_at":"{:%Y-%m-%dT%H:%M:%SZ}"}})", fmt::gmtime(static_cast<std::time_t>(model.created)));
}

void append_models(std::string& out, std::span<const ModelCard> models) {
  out += R"({"object":"list","data":[)";
  for (size_t i = 0; i < models.size(); ++i) {
    if (i > 0) out += ',';
    append_model(out, models[i]);
  }
  out += R"(],"has_more":false,"first_id":)";
  append_string_or_null(out, models.empty() ? "" : models.front().id);
  out += R"(,"last_id":)";
  append_string_or_null(out, models.empty() ? "" : models.back().id);
  out += '}';
}

}  // namespace baton::api
