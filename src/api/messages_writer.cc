#include "api/messages_writer.h"

#include "api/json_text.h"
#include "api/openai_parts.h"

namespace baton::api {
namespace {

using EventKind = text::OutputEvent::Kind;

// This API counts what was found in the cache apart from the rest of the prompt.
void append_message_usage(std::string& out, const Usage& usage) {
  out += R"({"input_tokens":)";
  append_int(out, usage.prompt - usage.cached);
  out += R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)";
  append_int(out, usage.cached);
  out += R"(,"output_tokens":)";
  append_int(out, usage.completion);
  out += R"(,"output_tokens_details":{"thinking_tokens":)";
  append_int(out, usage.reasoning);
  out += '}';
  append_timing(out, usage);
  out += '}';
}

std::string_view stop_reason(const Finish& finish) {
  switch (finish.reason) {
    case text::FinishReason::kLength: return "max_tokens";
    case text::FinishReason::kToolCalls: return "tool_use";
    default: return std::holds_alternative<std::string>(finish.matched) ? "stop_sequence" : "end_turn";
  }
}

void append_stop(std::string& out, const Finish& finish) {
  out += R"("stop_reason":")";
  out += stop_reason(finish);
  out += R"(","stop_sequence":)";
  if (const auto* text = std::get_if<std::string>(&finish.matched))
    append_string(out, *text);
  else
    out += "null";
}

void append_tool_use(std::string& out, std::string_view id, std::string_view name, std::string_view input) {
  out += R"({"type":"tool_use","id":)";
  append_string(out, id);
  out += R"(,"name":)";
  append_string(out, name);
  out += R"(,"input":)";
  out += input.empty() ? "{}" : input;
  out += '}';
}

void append_message_head(std::string& out, const AnswerHead& head) {
  out += R"({"id":)";
  append_string(out, head.id);
  out += R"(,"type":"message","role":"assistant","model":)";
  append_string(out, head.model);
  out += R"(,"content":[)";
}

}  // namespace

void MessageEventWriter::start(std::string& out, const Usage& usage) {
  out += "event: message_start\ndata: {\"type\":\"message_start\",\"message\":";
  append_message_head(out, head_);
  out += R"(],"stop_reason":null,"stop_sequence":null,"usage":)";
  append_message_usage(out, usage);
  out += "}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n";
}

// Up to the block's own object.
void MessageEventWriter::begin_block(std::string& out) {
  close(out);
  open_ = true;
  out += "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":";
  append_int(out, ++index_);
  out += R"(,"content_block":)";
}

// The block that text of this kind goes to.
void MessageEventWriter::open(std::string& out, Message::Kind kind) {
  if (open_ && kind_ == kind) return;
  begin_block(out);
  kind_ = kind;
  // Thinking is signed by nobody; clients want the field.
  out += kind == Message::Kind::kReasoning ? R"({"type":"thinking","thinking":"","signature":""})" : R"({"type":"text","text":""})";
  out += "}\n\n";
}

void MessageEventWriter::delta(std::string& out, std::string_view type, std::string_view key, std::string_view text) {
  out += "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
  append_int(out, index_);
  out += R"(,"delta":{"type":")";
  out += type;
  out += R"(",")";
  out += key;
  out += R"(":)";
  append_string(out, text);
  out += "}}\n\n";
}

void MessageEventWriter::close(std::string& out) {
  if (!open_) return;
  open_ = false;
  out += "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":";
  append_int(out, index_);
  out += "}\n\n";
}

void MessageEventWriter::events(std::string& out, std::span<const text::OutputEvent> events) {
  for (const text::OutputEvent& event : events) {
    switch (event.kind) {
      case EventKind::kReasoning:
        if (event.text.empty()) break;
        open(out, Message::Kind::kReasoning);
        delta(out, "thinking_delta", "thinking", event.text);
        break;
      case EventKind::kContent:
        if (event.text.empty()) break;
        open(out, Message::Kind::kContent);
        delta(out, "text_delta", "text", event.text);
        break;
      case EventKind::kToolStart:
        begin_block(out);
        kind_ = Message::Kind::kCall;
        append_tool_use(out, call_id("toolu_", head_.id, 0, event.tool_index), event.text, "{}");
        out += "}\n\n";
        break;
      case EventKind::kToolArguments:
        if (!event.text.empty()) delta(out, "input_json_delta", "partial_json", event.text);
        break;
      case EventKind::kToolEnd: close(out); break;
      case EventKind::kFinish: break;
    }
  }
}

void MessageEventWriter::finish(std::string& out, const Finish& finish, const Usage& usage) {
  close(out);
  out += "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{";
  append_stop(out, finish);
  out += R"(},"usage":)";
  append_message_usage(out, usage);
  out += "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
}

void MessageEventWriter::error(std::string& out, const ApiError& error) { append_error_event(out, Dialect::kAnthropic, error, head_.id); }

void append_message_answer(std::string& out, const AnswerHead& head, const Choice& choice, const Usage& usage) {
  append_message_head(out, head);
  int32_t calls = 0;
  for (const Message::Part& part : choice.message.parts) {
    if (&part != choice.message.parts.data()) out += ',';
    switch (part.kind) {
      case Message::Kind::kReasoning:
        out += R"({"type":"thinking","thinking":)";
        append_string(out, part.text);
        out += R"(,"signature":""})";
        break;
      case Message::Kind::kContent:
        out += R"({"type":"text","text":)";
        append_string(out, part.text);
        out += '}';
        break;
      case Message::Kind::kCall: append_tool_use(out, call_id("toolu_", head.id, 0, calls++), part.name, part.text); break;
    }
  }
  out += "],";
  append_stop(out, choice.finish);
  out += R"(,"usage":)";
  append_message_usage(out, usage);
  out += '}';
}

void append_token_count(std::string& out, int64_t tokens) {
  out += R"({"input_tokens":)";
  append_int(out, tokens);
  out += '}';
}

}  // namespace baton::api
