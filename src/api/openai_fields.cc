// Fields of OpenAI's endpoints that say neither what to generate nor how to sample.
#include "api/field_table.h"

namespace baton::api {
namespace {

constexpr Field kStreamOptions[] = {
    {.name = "include_usage",
     .type = "boolean",
     .what = "a last chunk, without choices, has the usage",
     .read = [](FieldReader& in, Request& out) { in.into(out.stream.include_usage); }},
    {.name = "continuous_usage_stats",
     .type = "boolean",
     .what = "every chunk has the usage so far",
     .read = [](FieldReader& in, Request& out) { in.into(out.stream.continuous_usage); }},
    without_effect("include_obfuscation", "chunks are not padded"),
};

constexpr Field kStream[] = {
    {.name = "stream",
     .type = "boolean",
     .what = "the answer as server-sent events",
     .read = [](FieldReader& in, Request& out) { in.into(out.stream.on); }},
    {.name = "stream_options",
     .type = "object",
     .what = "of streams: `include_usage` (a last chunk with the usage), `continuous_usage_stats` (usage in every chunk)",
     .read =
         [](FieldReader& in, Request& out) {
           const std::span<const Field> groups[] = {kStreamOptions};
           read_fields(in, groups, out);
         }},
};

constexpr Field kFields[] = {
    {.name = "model",
     .type = "string",
     .what = "a name that GET /v1/models lists; not given: the model that is served",
     .read = [](FieldReader& in, Request& out) { in.into(out.model); }},
    {.name = "user", .type = "string", .what = "who asks; for logs", .read = [](FieldReader& in, Request& out) { in.into(out.user); }},
    without_effect("safety_identifier", "nothing is judged by it"),
    without_effect("metadata", "nothing is stored"),
    without_effect("service_tier", "there is one tier; see `priority`"),
    without_effect("prompt_cache_key", "every prompt is looked up in the cache; see `cache_salt`"),
    without_effect("prompt_cache_retention", "the cache keeps what it has room for"),
    without_effect("session_id", "the cache finds what a prompt shares with earlier ones"),
    without_effect("rid", "the header X-Request-Id names a request"),
    without_effect("request_id", "the header X-Request-Id names a request"),
    {.name = "extra_key",
     .type = "string",
     .what = "SGLang's name of `cache_salt`",
     .same_as = "cache_salt",
     .read = [](FieldReader& in, Request& out) { in.into(out.cache_salt); }},
    refused("bootstrap_host", "the router places requests, not the client"),
    refused("bootstrap_port", "the router places requests, not the client"),
    refused("bootstrap_room", "the router places requests, not the client"),
    refused("routed_dp_rank", "the router places requests, not the client"),
    refused("data_parallel_rank", "the router places requests, not the client"),
    refused("store", "answers are not stored", "false"),
};

}  // namespace

std::span<const Field> stream_fields() { return kStream; }
std::span<const Field> openai_fields() { return kFields; }

}  // namespace baton::api
