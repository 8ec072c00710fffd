#include "text/parse/argument_writer.h"

namespace baton::text {
namespace {

constexpr std::string_view kSpace = " \t\n\r";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

void ArgumentWriter::begin(std::string_view key, ArgumentType type) {
  key_ = key;
  type_ = type;
  const ArgumentType text = ArgumentType::of(JsonKind::kString);
  form_ = type == text ? Form::kRaw : type == (text | ArgumentType::of(JsonKind::kNull)) ? Form::kNullOrRaw : Form::kJson;
  raw_begun_ = false;
  waiting_.clear();
}

size_t ArgumentWriter::silent_bytes(std::string_view text) const {
  return form_ == Form::kJson ? std::min(text.find_first_not_of(kSpace), text.size()) : 0;
}

void ArgumentWriter::add(std::string_view text, std::string& out) {
  if (form_ != Form::kRaw) {
    waiting_ += text;
    const bool waits = form_ == Form::kJson ? waiting_.size() <= kMostValueBytes : std::string_view("null").starts_with(waiting_);
    if (waits) return;
    begin_raw(out);
    append_json_escaped(out, waiting_);
    waiting_.clear();
    return;
  }
  if (!raw_begun_) begin_raw(out);
  append_json_escaped(out, text);
}

void ArgumentWriter::end(std::string& out) {
  if (form_ == Form::kRaw) {
    if (!raw_begun_) begin_raw(out);
    out += '"';
    return;
  }
  const std::string value = form_ == Form::kNullOrRaw ? (waiting_ == "null" ? waiting_ : "") : json_of(waiting_);
  write(value, out);
}

void ArgumentWriter::end_cut(std::string& out) {
  if (form_ == Form::kRaw && raw_begun_) return end(out);
  if (form_ == Form::kRaw || silent_bytes(waiting_) == waiting_.size()) return;
  const std::string_view text = trimmed(waiting_);
  const auto whole =
      form_ == Form::kJson && type_.has(text.front() == '{' ? JsonKind::kObject : JsonKind::kArray) ? completed_json(text) : std::nullopt;
  if (whole)
    write(*whole, out);
  else
    end(out);
}

void ArgumentWriter::close(std::string& out) {
  out += any_ ? "}" : "{}";
  any_ = false;
}

void ArgumentWriter::begin_raw(std::string& out) {
  form_ = Form::kRaw;
  raw_begun_ = true;
  write_key(out);
  out += '"';
}

// `value` is JSON; empty: the text that waited is a string.
void ArgumentWriter::write(std::string_view value, std::string& out) {
  if (value.empty()) {
    begin_raw(out);
    append_json_escaped(out, waiting_);
    out += '"';
  } else {
    write_key(out);
    out += with_whole_surrogates(value);
  }
  waiting_.clear();
}

std::string ArgumentWriter::json_of(std::string_view text) const {
  const std::string_view value = trimmed(text);
  const bool may_be_text = type_.has(JsonKind::kString) && !type_.is_anything();
  if (!type_.has(JsonKind::kString)) {
    // As Python spells them.
    if (type_.has(JsonKind::kBoolean) && value == "True") return "true";
    if (type_.has(JsonKind::kBoolean) && value == "False") return "false";
    if (type_.has(JsonKind::kNull) && value == "None") return "null";
  }
  const auto kind = json_kind(value);
  if (!kind) return {};
  // Where a string would do as well, only what another member of the union asks for is JSON. Where none would, all JSON is, so that a
  // schema checker downstream can say what is wrong with it.
  if (may_be_text && (*kind == JsonKind::kString || !type_.has(*kind))) return {};
  return std::string(value);
}

void ArgumentWriter::write_key(std::string& out) {
  out += any_ ? ",\"" : "{\"";
  any_ = true;
  append_json_escaped(out, key_);
  out += "\":";
}

}  // namespace baton::text
