#include "api/completion_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "api/json_text.h"
#include "api/openai_parts.h"
#include "text/utf8.h"

namespace baton::api {
namespace {

// A character that several tokens make counts for the first of them.
int64_t characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return !text::is_continuation(c); });
}

// A token that is a part of a character has no text of its own; OpenAI writes its bytes: "bytes:\\xe6\\xbc". So it keeps a name of its own.
void append_token(std::string& out, std::string_view bytes) {
  if (text::valid_utf8(bytes)) return append_string(out, bytes);
  out += "\"bytes:";
  for (const char c : bytes) fmt::format_to(std::back_inserter(out), "\\\\x{:02x}", static_cast<uint8_t>(c));
  out += '"';
}

void append_top(std::string& out, const TokenLogprobs& token) {
  // The drawn token is among them, and of tokens that read the same the likeliest: names in an object are distinct.
  std::vector<std::string> names;
  out += '{';
  const auto entry = [&](const TokenLogprob& t) {
    std::string name;
    append_token(name, t.bytes);
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    if (!names.empty()) out += ',';
    out += name;
    out += ':';
    append_number(out, shown_logprob(t.logprob));
    names.push_back(std::move(name));
  };
  for (const TokenLogprob& t : token.top) entry(t);
  entry(token.token);
  out += '}';
}

// Counts `offset` on.
void append_logprobs(std::string& out, std::span<const TokenLogprobs> tokens, int64_t& offset) {
  const auto list = [&](std::string_view name, const auto& append) {
    out += name;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out += ',';
      append(tokens[i]);
    }
    out += ']';
  };
  list(R"({"text_offset":[)", [&](const TokenLogprobs& t) {
    append_int(out, offset);
    offset += characters(t.token.bytes);
  });
  list(R"(,"token_logprobs":[)", [&](const TokenLogprobs& t) {
    if (t.known)
      append_number(out, shown_logprob(t.token.logprob));
    else
      out += "null";
  });
  list(R"(,"tokens":[)", [&](const TokenLogprobs& t) { append_token(out, t.token.bytes); });
  list(R"(,"top_logprobs":[)", [&](const TokenLogprobs& t) {
    if (t.known)
      append_top(out, t);
    else
      out += "null";
  });
  out += '}';
}

void append_choice(std::string& out, int64_t index, std::string_view text) {
  out += R"({"index":)";
  append_int(out, index);
  out += R"(,"text":)";
  append_string(out, text);
  out += R"(,"logprobs":)";
}

}  // namespace

CompletionChunkWriter::CompletionChunkWriter(const AnswerHead& head, const Options& options)
    : options_(options), offsets_(static_cast<size_t>(options.choices)) {
  prefix_ = "data: ";
  append_head(prefix_, head, "text_completion");
  prefix_ += R"(,"choices":[)";
}

void CompletionChunkWriter::chunk(std::string& out, int32_t choice, std::string_view text, std::span<const TokenLogprobs> logprobs,
                                  const Finish* finish, const Usage& usage) {
  out += prefix_;
  append_choice(out, choice, text);
  if (options_.logprobs && !logprobs.empty())
    append_logprobs(out, logprobs, offsets_.at(static_cast<size_t>(choice)));
  else
    out += "null";
  out += ',';
  append_chunk_end(out, finish, {options_.include_usage, options_.continuous_usage}, usage);
}

void CompletionChunkWriter::text(std::string& out, int32_t choice, std::string_view text, std::span<const TokenLogprobs> logprobs,
                                 const Usage& usage) {
  if (text.empty() && (!options_.logprobs || logprobs.empty())) return;
  chunk(out, choice, text, logprobs, nullptr, usage);
}

void CompletionChunkWriter::finish(std::string& out, int32_t choice, const Finish& finish, const Usage& usage) {
  chunk(out, choice, "", {}, &finish, usage);
}

void CompletionChunkWriter::usage(std::string& out, const Usage& usage) {
  out += prefix_;
  out += R"(],"usage":)";
  append_usage(out, usage);
  out += "}\n\n";
}

void CompletionChunkWriter::done(std::string& out) { out += "data: [DONE]\n\n"; }

void CompletionChunkWriter::error(std::string& out, const ApiError& error) { append_error_event(out, Dialect::kOpenAi, error); }

void append_completion_answer(std::string& out, const AnswerHead& head, std::span<const CompletionChoice> choices, const Usage& usage,
                              bool logprobs) {
  append_head(out, head, "text_completion");
  out += R"(,"choices":[)";
  for (size_t i = 0; i < choices.size(); ++i) {
    const CompletionChoice& choice = choices[i];
    if (i > 0) out += ',';
    append_choice(out, static_cast<int64_t>(i), choice.text);
    int64_t offset = 0;
    if (logprobs)
      append_logprobs(out, choice.logprobs, offset);
    else
      out += "null";
    out += ',';
    append_finish(out, choice.finish);
    if (!choice.prompt_logprobs.empty()) {
      out += R"(,"prompt_logprobs":)";
      append_prompt_logprobs(out, choice.prompt_logprobs);
    }
    out += '}';
  }
  out += R"(],"usage":)";
  append_usage(out, usage);
  out += '}';
}

}  // namespace baton::api
