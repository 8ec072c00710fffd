#include "api/responses_writer.h"

#include "api/json_text.h"
#include "api/openai_parts.h"

namespace baton::api {
namespace {

using EventKind = text::OutputEvent::Kind;
using Kind = Message::Kind;

std::string item_id(const AnswerHead& head, Kind kind, int64_t item) {
  const std::string_view prefix = kind == Kind::kReasoning ? "rs_" : kind == Kind::kContent ? "msg_" : "fc_";
  return call_id(prefix, head.id, -1, static_cast<int32_t>(item));
}

// The one part that an item of text has.
void append_part(std::string& out, Kind kind, std::string_view text) {
  out += kind == Kind::kReasoning ? R"({"type":"reasoning_text","text":)" : R"({"type":"output_text","text":)";
  append_string(out, text);
  out += kind == Kind::kReasoning ? "}" : R"(,"annotations":[],"logprobs":[]})";
}

// `call` is the number of the call among calls. An item that only begins has no part yet.
void append_item(std::string& out, const AnswerHead& head, const Message::Part& part, int64_t item, int32_t call, std::string_view status,
                 bool begins) {
  out += R"({"id":)";
  append_string(out, item_id(head, part.kind, item));
  out += R"(,"status":")";
  out += status;
  out += '"';
  if (part.kind == Kind::kCall) {
    out += R"(,"type":"function_call","call_id":)";
    append_string(out, call_id("call_", head.id, 0, call));
    out += R"(,"name":)";
    append_string(out, part.name);
    out += R"(,"arguments":)";
    append_string(out, part.text);
    out += '}';
    return;
  }
  out += part.kind == Kind::kReasoning ? R"(,"type":"reasoning","summary":[],"content":[)"
                                       : R"(,"type":"message","role":"assistant","content":[)";
  if (!begins) append_part(out, part.kind, part.text);
  out += "]}";
}

void append_response_usage(std::string& out, const Usage& usage) {
  out += R"({"input_tokens":)";
  append_int(out, usage.prompt);
  out += R"(,"input_tokens_details":{"cached_tokens":)";
  append_int(out, usage.cached);
  out += R"(,"cache_write_tokens":0},"output_tokens":)";
  append_int(out, usage.completion);
  out += R"(,"output_tokens_details":{"reasoning_tokens":)";
  append_int(out, usage.reasoning);
  out += R"(},"total_tokens":)";
  append_int(out, usage.prompt + usage.completion);
  append_timing(out, usage);
  out += '}';
}

struct State {
  std::string_view status;  // "in_progress", "completed", "incomplete", "failed"
  const Usage* usage = nullptr;
  const ApiError* error = nullptr;
};

void append_response(std::string& out, const ResponseHead& head, const Message& message, const State& state) {
  out += R"({"id":)";
  append_string(out, head.id);
  out += R"(,"object":"response","created_at":)";
  append_int(out, head.created);
  out += R"(,"status":")";
  out += state.status;
  out += R"(","background":false,"error":)";
  if (state.error != nullptr) {
    out += R"({"code":"server_error","message":)";
    append_string(out, state.error->message);
    out += '}';
  } else {
    out += "null";
  }
  out += R"(,"incomplete_details":)";
  out += state.status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null";
  out += R"(,"model":)";
  append_string(out, head.model);
  out += ',';
  out += head.echo.empty() ? R"("parallel_tool_calls":true,"tool_choice":"auto","tools":[])" : head.echo;
  out += R"(,"output":[)";
  int32_t calls = 0;
  for (size_t i = 0; i < message.parts.size(); ++i) {
    if (i > 0) out += ',';
    const Message::Part& part = message.parts[i];
    const bool last = i + 1 == message.parts.size();
    append_item(out, head, part, static_cast<int64_t>(i), calls, last && state.status != "completed" ? "incomplete" : "completed", false);
    calls += part.kind == Kind::kCall ? 1 : 0;
  }
  out += R"(],"usage":)";
  if (state.usage != nullptr)
    append_response_usage(out, *state.usage);
  else
    out += "null";
  out += '}';
}

State ended(const Finish& finish, const Usage& usage) {
  return {.status = finish.reason == text::FinishReason::kLength ? "incomplete" : "completed", .usage = &usage};
}

}  // namespace

void ResponseEventWriter::begin(std::string& out, std::string_view type) {
  out += "event: ";
  out += type;
  out += "\ndata: {\"type\":\"";
  out += type;
  out += R"(","sequence_number":)";
  append_int(out, sequence_++);
}

void ResponseEventWriter::begin_in_part(std::string& out, std::string_view type) {
  begin(out, type);
  const Kind kind = message_.parts.back().kind;
  out += R"(,"item_id":)";
  append_string(out, item_id(head_, kind, item()));
  out += R"(,"output_index":)";
  append_int(out, item());
  if (kind != Kind::kCall) out += R"(,"content_index":0)";
}

void ResponseEventWriter::start(std::string& out) {
  for (const char* type : {"response.created", "response.in_progress"}) {
    begin(out, type);
    out += R"(,"response":)";
    append_response(out, head_, message_, {.status = "in_progress"});
    end(out);
  }
}

// The last part has just begun.
void ResponseEventWriter::open(std::string& out, Kind kind) {
  open_ = true;
  begin(out, "response.output_item.added");
  out += R"(,"output_index":)";
  append_int(out, item());
  out += R"(,"item":)";
  append_item(out, head_, {kind, "", message_.parts.back().name}, item(), calls_, "in_progress", true);
  end(out);
  if (kind == Kind::kCall) return;
  begin_in_part(out, "response.content_part.added");
  out += R"(,"part":)";
  append_part(out, kind, "");
  end(out);
}

void ResponseEventWriter::delta(std::string& out, const std::string& text) {
  const Kind kind = message_.parts.back().kind;
  begin_in_part(out, kind == Kind::kReasoning ? "response.reasoning_text.delta"
                     : kind == Kind::kContent ? "response.output_text.delta"
                                              : "response.function_call_arguments.delta");
  out += R"(,"delta":)";
  append_string(out, text);
  if (kind == Kind::kContent) out += R"(,"logprobs":[])";
  end(out);
}

void ResponseEventWriter::close(std::string& out, std::string_view status) {
  if (!open_) return;
  open_ = false;
  const Message::Part& part = message_.parts.back();
  begin_in_part(out, part.kind == Kind::kReasoning ? "response.reasoning_text.done"
                     : part.kind == Kind::kContent ? "response.output_text.done"
                                                   : "response.function_call_arguments.done");
  out += part.kind == Kind::kCall ? R"(,"arguments":)" : R"(,"text":)";
  append_string(out, part.text);
  if (part.kind == Kind::kContent) out += R"(,"logprobs":[])";
  if (part.kind == Kind::kCall) {
    out += R"(,"name":)";
    append_string(out, part.name);
  }
  end(out);
  if (part.kind != Kind::kCall) {
    begin_in_part(out, "response.content_part.done");
    out += R"(,"part":)";
    append_part(out, part.kind, part.text);
    end(out);
  }
  begin(out, "response.output_item.done");
  out += R"(,"output_index":)";
  append_int(out, item());
  out += R"(,"item":)";
  append_item(out, head_, part, item(), calls_, status, false);
  end(out);
  calls_ += part.kind == Kind::kCall ? 1 : 0;
}

void ResponseEventWriter::events(std::string& out, std::span<const text::OutputEvent> events) {
  for (const text::OutputEvent& event : events) {
    if (event.kind == EventKind::kToolEnd) close(out);
    if (event.kind == EventKind::kToolEnd || event.kind == EventKind::kFinish) continue;
    if (event.kind == EventKind::kToolStart) {
      close(out);
      message_.add(event);
      open(out, Kind::kCall);
      continue;
    }
    if (event.text.empty()) continue;
    const Kind kind = event.kind == EventKind::kReasoning ? Kind::kReasoning
                      : event.kind == EventKind::kContent ? Kind::kContent
                                                          : Kind::kCall;
    if (kind != Kind::kCall && !(open_ && message_.parts.back().kind == kind)) {
      close(out);
      message_.parts.push_back({kind, "", ""});
      open(out, kind);
    }
    message_.parts.back().text += event.text;
    delta(out, event.text);
  }
}

void ResponseEventWriter::finish(std::string& out, const Finish& finish, const Usage& usage) {
  const State state = ended(finish, usage);
  close(out, state.status);
  begin(out, state.status == "completed" ? "response.completed" : "response.incomplete");
  out += R"(,"response":)";
  append_response(out, head_, message_, state);
  end(out);
}

void ResponseEventWriter::error(std::string& out, const ApiError& error) {
  begin(out, "error");
  out += R"(,"code":)";
  append_string_or_null(out, error.code);
  out += R"(,"message":)";
  append_string(out, error.message);
  out += R"(,"param":)";
  append_string_or_null(out, error.param);
  end(out);
  begin(out, "response.failed");
  out += R"(,"response":)";
  append_response(out, head_, message_, {.status = "failed", .error = &error});
  end(out);
}

void append_response_answer(std::string& out, const ResponseHead& head, const Choice& choice, const Usage& usage) {
  append_response(out, head, choice.message, ended(choice.finish, usage));
}

}  // namespace baton::api
