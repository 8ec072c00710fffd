#include "api/chat_writer.h"

#include "api/json_text.h"
#include "api/openai_parts.h"
#include "base/check.h"

namespace baton::api {
namespace {

using EventKind = text::OutputEvent::Kind;

void append_call(std::string& out, std::string_view id, std::string_view name, std::string_view arguments) {
  out += R"("id":)";
  append_string(out, id);
  out += R"(,"type":"function","function":{"name":)";
  append_string(out, name);
  out += R"(,"arguments":)";
  append_string(out, arguments);
  out += '}';
}

}  // namespace

ChatChunkWriter::ChatChunkWriter(const AnswerHead& head, const Options& options) : id_(head.id), options_(options) {
  prefix_ = "data: ";
  append_head(prefix_, head, "chat.completion.chunk");
  prefix_ += R"(,"choices":[)";
  append_string(reasoning_key_, head.reasoning_field);
  reasoning_key_ += ':';
  if (options_.logprobs) waiting_.resize(static_cast<size_t>(options_.choices));
}

void ChatChunkWriter::begin(std::string& out, int32_t choice) const {
  out += prefix_;
  out += R"({"index":)";
  append_int(out, choice);
  out += R"(,"delta":{)";
}

// From the end of the delta on.
void ChatChunkWriter::end(std::string& out, int32_t choice, const Usage& usage, const Finish* finish) {
  out += R"(},"logprobs":)";
  if (!waiting_.empty() && !waiting_[static_cast<size_t>(choice)].empty()) {
    std::string& entries = waiting_[static_cast<size_t>(choice)];
    out += R"({"content":[)";
    out += entries;
    out += R"(],"refusal":null})";
    entries.clear();
  } else {
    out += "null";
  }
  out += ',';
  append_chunk_end(out, finish, {options_.include_usage, options_.continuous_usage}, usage);
}

void ChatChunkWriter::role(std::string& out, int32_t choice, const Usage& usage) {
  begin(out, choice);
  out += R"("role":"assistant","content":"")";
  end(out, choice, usage, nullptr);
}

void ChatChunkWriter::events(std::string& out, int32_t choice, std::span<const text::OutputEvent> events,
                             std::span<const TokenLogprobs> logprobs, const Usage& usage) {
  BATON_CHECK(choice >= 0 && choice < options_.choices);
  if (!waiting_.empty()) {
    std::string& entries = waiting_[static_cast<size_t>(choice)];
    for (const TokenLogprobs& token : logprobs) {
      if (!entries.empty()) entries += ',';
      append_logprob_entry(entries, token);
    }
  }
  for (const text::OutputEvent& event : events) {
    if (event.kind == EventKind::kToolEnd || event.kind == EventKind::kFinish) continue;
    if (event.text.empty() && event.kind != EventKind::kToolStart) continue;
    begin(out, choice);
    switch (event.kind) {
      case EventKind::kReasoning:
        out += reasoning_key_;
        append_string(out, event.text);
        break;
      case EventKind::kContent:
        out += R"("content":)";
        append_string(out, event.text);
        break;
      case EventKind::kToolStart:
        out += R"("tool_calls":[{"index":)";
        append_int(out, event.tool_index);
        out += ',';
        append_call(out, call_id("call_", id_, choice, event.tool_index), event.text, "");
        out += "}]";
        break;
      default:
        out += R"("tool_calls":[{"index":)";
        append_int(out, event.tool_index);
        out += R"(,"function":{"arguments":)";
        append_string(out, event.text);
        out += "}}]";
        break;
    }
    end(out, choice, usage, nullptr);
  }
}

void ChatChunkWriter::finish(std::string& out, int32_t choice, const Finish& finish, const Usage& usage) {
  if (!waiting_.empty() && !waiting_[static_cast<size_t>(choice)].empty()) {
    begin(out, choice);
    out += R"("content":"")";
    end(out, choice, usage, nullptr);
  }
  begin(out, choice);
  end(out, choice, usage, &finish);
}

void ChatChunkWriter::usage(std::string& out, const Usage& usage) {
  out += prefix_;
  out += R"(],"usage":)";
  append_usage(out, usage);
  out += "}\n\n";
}

void ChatChunkWriter::done(std::string& out) { out += "data: [DONE]\n\n"; }

void ChatChunkWriter::error(std::string& out, const ApiError& error) { append_error_event(out, Dialect::kOpenAi, error); }

void append_chat_answer(std::string& out, const AnswerHead& head, const ChatAnswer& answer) {
  append_head(out, head, "chat.completion");
  out += R"(,"choices":[)";
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& choice = answer.choices[i];
    const Message& message = choice.message;
    if (i > 0) out += ',';
    out += R"({"index":)";
    append_int(out, static_cast<int64_t>(i));
    out += R"(,"message":{"role":"assistant","content":)";
    // A message of calls alone has no content, one without anything has an empty one: clients take null for "look at the calls".
    if (message.has(Message::Kind::kCall) && !message.has(Message::Kind::kContent))
      out += "null";
    else
      append_string(out, message.joined(Message::Kind::kContent));
    out += R"(,"refusal":null,)";
    append_string(out, head.reasoning_field);
    out += ':';
    append_string_or_null(out, message.joined(Message::Kind::kReasoning));
    if (message.has(Message::Kind::kCall)) {
      out += R"(,"tool_calls":[)";
      int32_t calls = 0;
      for (const Message::Part& part : message.parts) {
        if (part.kind != Message::Kind::kCall) continue;
        if (calls > 0) out += ',';
        out += '{';
        append_call(out, call_id("call_", head.id, static_cast<int32_t>(i), calls++), part.name, part.text);
        out += '}';
      }
      out += ']';
    }
    out += R"(},"logprobs":)";
    if (answer.logprobs) {
      out += R"({"content":[)";
      for (size_t t = 0; t < choice.logprobs.size(); ++t) {
        if (t > 0) out += ',';
        append_logprob_entry(out, choice.logprobs[t]);
      }
      out += R"(],"refusal":null})";
    } else {
      out += "null";
    }
    out += ',';
    append_finish(out, choice.finish);
    out += '}';
  }
  out += R"(],"usage":)";
  append_usage(out, answer.usage);
  if (!answer.prompt_logprobs.empty()) {
    out += R"(,"prompt_logprobs":)";
    append_prompt_logprobs(out, answer.prompt_logprobs);
  }
  out += '}';
}

}  // namespace baton::api
