// Bounds of what a request may hold. Beyond one, it is refused with a message that names the field and the bound.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::api {

struct ParseLimits {
  size_t body_bytes = size_t{16} << 20;
  int depth = 128;                       // of the JSON
  size_t values = 2'000'000;             // in the JSON: prompts of ids are long
  size_t conversation_values = 500'000;  // in the JSON of messages, and of tools: each takes much more memory there
  size_t fields = 1000;                  // of the body, and of an object in it that has a table
  size_t messages = 20'000;
  size_t tools = 512;
  size_t stop_strings = 64;
  size_t stop_bytes = 1024;  // of one
  size_t stop_token_ids = 256;
  size_t logit_biases = 4096;
  size_t schema_bytes = size_t{256} << 10;
  size_t prompts = 256;       // of a completion or a /generate
  int32_t choices = 128;      // n
  int32_t all_choices = 256;  // of all prompts together, where n alone is not more
  int32_t top_logprobs = 20;
  int64_t max_tokens = int64_t{1} << 24;
  int32_t vocabulary = 0;  // ids have to be below; 0: not known here
  bool strict = false;     // fields that no table knows are refused instead of listed in ignored_fields
};

}  // namespace baton::api
