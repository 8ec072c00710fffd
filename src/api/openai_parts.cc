#include "api/openai_parts.h"

#include <algorithm>

#include "api/json_text.h"

namespace baton::api {
namespace {

void append_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_int(out, static_cast<uint8_t>(bytes[i]));
  }
  out += ']';
}

void append_token(std::string& out, const TokenLogprob& token) {
  out += R"({"token":)";
  append_string(out, token.bytes);
  out += R"(,"logprob":)";
  append_number(out, shown_logprob(token.logprob));
  out += R"(,"bytes":)";
  append_bytes(out, token.bytes);
}

}  // namespace

// JSON knows no infinity; this is the number that OpenAI uses for what is practically impossible.
float shown_logprob(float logprob) { return logprob > -9999.0F ? std::min(logprob, 0.0F) : -9999.0F; }

void append_logprob_entry(std::string& out, const TokenLogprobs& token) {
  append_token(out, token.token);
  out += R"(,"top_logprobs":[)";
  for (size_t i = 0; i < token.top.size(); ++i) {
    if (i > 0) out += ',';
    append_token(out, token.top[i]);
    out += '}';
  }
  out += "]}";
}

void append_prompt_logprobs(std::string& out, std::span<const TokenLogprobs> tokens) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    if (!tokens[i].known) {
      out += "null";
      continue;
    }
    out += '{';
    const auto entry = [&](const TokenLogprob& token, size_t rank) {
      if (out.back() != '{') out += ',';
      out += '"';
      append_int(out, token.id);
      out += R"(":{"logprob":)";
      append_number(out, shown_logprob(token.logprob));
      if (rank > 0) {
        out += R"(,"rank":)";
        append_int(out, static_cast<int64_t>(rank));
      }
      out += R"(,"decoded_token":)";
      append_string(out, token.bytes);
      out += '}';
    };
    bool among = false;
    for (size_t k = 0; k < tokens[i].top.size(); ++k) {
      among |= tokens[i].top[k].id == tokens[i].token.id;
      entry(tokens[i].top[k], k + 1);
    }
    if (!among) entry(tokens[i].token, 0);
    out += '}';
  }
  out += ']';
}

void append_head(std::string& out, const AnswerHead& head, std::string_view object) {
  out += R"({"id":)";
  append_string(out, head.id);
  out += R"(,"object":")";
  out += object;
  out += R"(","created":)";
  append_int(out, head.created);
  out += R"(,"model":)";
  append_string(out, head.model);
  out += R"(,"system_fingerprint":)";
  append_string_or_null(out, head.fingerprint);
}

void append_usage(std::string& out, const Usage& usage) {
  out += R"({"prompt_tokens":)";
  append_int(out, usage.prompt);
  out += R"(,"completion_tokens":)";
  append_int(out, usage.completion);
  out += R"(,"total_tokens":)";
  append_int(out, usage.prompt + usage.completion);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  append_int(out, usage.cached);
  out += R"(},"completion_tokens_details":{"reasoning_tokens":)";
  append_int(out, usage.reasoning);
  if (usage.drafted && usage.accepted) {  // where gateways and OpenAI's clients look for them
    out += R"(,"accepted_prediction_tokens":)";
    append_int(out, *usage.accepted);
    out += R"(,"rejected_prediction_tokens":)";
    append_int(out, *usage.drafted - *usage.accepted);
  }
  out += '}';
  append_timing(out, usage);
  out += '}';
}

void append_timing(std::string& out, const Usage& usage) {
  if (!usage.timing) return;
  out += R"(,"timing":{"queue_s":)";
  append_number(out, usage.timing->queue_s);
  out += R"(,"prefill_s":)";
  append_number(out, usage.timing->prefill_s);
  out += R"(,"decode_s":)";
  append_number(out, usage.timing->decode_s);
  out += '}';
}

void append_finish(std::string& out, const Finish& finish) {
  out += R"("finish_reason":")";
  out += name_of(finish.reason);
  out += '"';
  if (const auto* text = std::get_if<std::string>(&finish.matched)) {
    out += R"(,"stop_reason":)";
    append_string(out, *text);
  } else if (const auto* id = std::get_if<int32_t>(&finish.matched)) {
    out += R"(,"stop_reason":)";
    append_int(out, *id);
  }
}

void append_chunk_end(std::string& out, const Finish* finish, ChunkUsage shown, const Usage& usage) {
  if (finish != nullptr)
    append_finish(out, *finish);
  else
    out += R"("finish_reason":null)";
  out += "}]";
  if (shown.continuous) {
    out += R"(,"usage":)";
    append_usage(out, usage);
  } else if (shown.include) {
    out += R"(,"usage":null)";
  }
  out += "}\n\n";
}

}  // namespace baton::api
