#include "text/parse/output_parser.h"

#include "base/check.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

using Kind = OutputEvent::Kind;

constexpr std::string_view kSpace = " \t\n\r\f\v";
constexpr size_t kMostSpaceBytes = 1024;      // that wait for the text after them
constexpr size_t kMostCandidateBytes = 4096;  // from <tool_call> to the first value
constexpr size_t kMostKeyBytes = 4096;
constexpr size_t kMostBetweenBytes = 1024;  // of text between arguments, before the call counts as ended

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}
bool only_space(std::string_view text) { return text.find_first_not_of(kSpace) == std::string_view::npos; }

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool begins_marker(std::string_view text) {
  for (int i = 0; i < kMarkerCount; ++i)
    if (spelling(static_cast<Marker>(i)).starts_with(text)) return true;
  return false;
}

}  // namespace

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    case FinishReason::kAbort: return "abort";
  }
  return "stop";
}

void append_merged(std::vector<OutputEvent>& events, OutputEvent event) {
  const bool delta = event.kind == Kind::kReasoning || event.kind == Kind::kContent || event.kind == Kind::kToolArguments;
  if (delta && event.text.empty()) return;
  if (delta && !events.empty() && events.back().kind == event.kind && events.back().tool_index == event.tool_index)
    events.back().text += event.text;
  else
    events.push_back(std::move(event));
}

OutputParser::OutputParser(const OutputMarkup& markup, const Options& options)
    : tools_(options.tools), tokenizer_(options.tokenizer), markup_(markup), scanner_(markup),
      state_(options.starts_in_reasoning ? State::kReasoning : State::kContent), block_(state_) {
  if (tools_ != nullptr && tools_->empty()) tools_ = nullptr;
  if (tokenizer_ != nullptr) detokenizer_.emplace(*tokenizer_, options.skip_special);
}

void OutputParser::add(int32_t id, std::vector<OutputEvent>& events) {
  BATON_CHECK_MSG(detokenizer_.has_value(), "tokens need a parser with a tokenizer");
  events_ = &events;
  std::string text;
  append_lossy(text, half_character_);
  half_character_.clear();
  if (const auto marker = markup_.marker(id)) {
    detokenizer_->finish(text);
    scan(text);
    scanner_.flush([this](std::string_view held) { on_text(held); });
    on_marker(*marker);
    return;
  }
  detokenizer_->add(id, text);
  scan(text);
}

void OutputParser::add_text(std::string_view text, std::vector<OutputEvent>& events) {
  events_ = &events;
  std::string whole;
  if (detokenizer_) detokenizer_->finish(whole);
  half_character_ += text;
  const size_t tail = incomplete_tail(half_character_);
  append_lossy(whole, std::string_view(half_character_).substr(0, half_character_.size() - tail));
  half_character_.erase(0, half_character_.size() - tail);
  scan(whole);
}

void OutputParser::finish(FinishReason engine, std::vector<OutputEvent>& events) {
  events_ = &events;
  std::string text;
  if (detokenizer_) detokenizer_->finish(text);
  append_lossy(text, half_character_);
  half_character_.clear();
  scan(text);
  scanner_.flush([this](std::string_view held) { on_text(held); });

  if (state_ == State::kValue && !held_close_.empty()) {
    held_close_.clear();
    end_value();
  }
  if (state_ == State::kValue && begun_call()) {
    std::string fragment;
    writer_.end_cut(fragment);
    emit(Kind::kToolArguments, fragment);
  }
  // A marker that was cut off is not worth showing.
  if (state_ == State::kBetween && begins_marker(trimmed(between_))) between_.clear();
  if (begun_call())
    end_call();
  else if (state_ != State::kReasoning && state_ != State::kContent)
    show_candidate();
  space_.clear();
  const bool called = calls_ > 0 && engine == FinishReason::kStop;
  events.push_back({Kind::kFinish, -1, {}, called ? FinishReason::kToolCalls : engine});
}

void OutputParser::scan(std::string_view text) {
  scanner_.add(
      text, [this](std::string_view t) { on_text(t); }, [this](Marker m) { on_marker(m); });
}

void OutputParser::emit(Kind kind, std::string_view text) {
  const bool of_tool = kind == Kind::kToolStart || kind == Kind::kToolArguments || kind == Kind::kToolEnd;
  append_merged(*events_, {kind, of_tool ? calls_ - 1 : -1, std::string(text)});
}

// ---- Text, wherever it stands

void OutputParser::on_text(std::string_view text) {
  switch (state_) {
    case State::kReasoning:
    case State::kContent: return show(text);
    case State::kName: return name_text(text);
    case State::kKey: return key_text(text);
    case State::kAfterKey: return after_key_text(text);
    case State::kValue: return value_text(text);
    case State::kBetween: return between_text(text);
  }
}

void OutputParser::on_marker(Marker marker) {
  if (state_ == State::kReasoning || state_ == State::kContent)
    block_marker(marker);
  else
    call_marker(marker);
}

// ---- Reasoning and content

void OutputParser::show(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  wait(text.substr(0, first));
  text.remove_prefix(first);
  if (text.empty()) return;
  // Empty lines before a block are layout, the indentation of its first line is not.
  if (!block_begun_) space_.erase(0, space_.rfind('\n') + 1);
  const size_t end = text.find_last_not_of(kSpace) + 1;
  space_ += text.substr(0, end);
  emit(state_ == State::kReasoning ? Kind::kReasoning : Kind::kContent, space_);
  space_.clear();
  space_shown_ = false;
  block_begun_ = true;
  wait(text.substr(end));
}

void OutputParser::wait(std::string_view space) {
  space_ += space;
  if (space_.size() <= kMostSpaceBytes && !space_shown_) return;
  emit(state_ == State::kReasoning ? Kind::kReasoning : Kind::kContent, space_);
  space_.clear();
  space_shown_ = true;
  block_begun_ = true;
}

void OutputParser::enter(State block) {
  state_ = block_ = block;
  block_begun_ = quoting_ = space_shown_ = false;
  space_.clear();
}

void OutputParser::block_marker(Marker marker) {
  switch (marker) {
    case Marker::kThink:
      if (state_ == State::kContent && !block_begun_) return enter(State::kReasoning);
      if (block_begun_) show(spelling(marker));
      return;
    case Marker::kThinkEnd:
      if (state_ == State::kReasoning) enter(State::kContent);
      return;
    case Marker::kToolCall:
      if (tools_ == nullptr) return show(spelling(marker));
      return start_candidate();
    case Marker::kToolCallEnd:
      if (tools_ == nullptr || quoting_) show(spelling(marker));
      quoting_ = false;
      return;
    default: return show(spelling(marker));
  }
}

// ---- Tool calls

void OutputParser::call_marker(Marker marker) {
  if (state_ == State::kValue) {
    if (marker == Marker::kArgValueEnd) return end_value();
    add_to_value(held_close_);
    held_close_.clear();
    if (marker == Marker::kToolCallEnd)
      held_close_ = spelling(marker);
    else
      add_to_value(spelling(marker));
    return;
  }
  const bool named = state_ == State::kName && candidate_name().has_value();
  const bool may_take_key = named || state_ == State::kBetween || (begun_call() && state_ != State::kName);
  if (marker == Marker::kArgKey && may_take_key) {
    key_.clear();
    between_.clear();
    state_ = State::kKey;
    keep_candidate(spelling(marker));
    return;
  }
  if (marker == Marker::kArgKeyEnd && state_ == State::kKey) {
    state_ = State::kAfterKey;
    keep_candidate(spelling(marker));
    return;
  }
  // Before the call began, a lost </arg_key> makes it a mention; afterwards it is repaired.
  if (marker == Marker::kArgValue && (state_ == State::kAfterKey || (state_ == State::kKey && begun_call()))) {
    if (keep_candidate(spelling(marker))) begin_value();
    return;
  }
  if (marker == Marker::kToolCallEnd && (named || begun_call())) {
    if (named) begin_call();
    if (state_ == State::kBetween) between_.clear();
    return end_call();
  }
  if (begun_call()) {
    const bool argument_markup = marker != Marker::kThink && marker != Marker::kThinkEnd && marker != Marker::kToolCall;
    if (argument_markup) {
      if (state_ == State::kBetween) between_text(spelling(marker));
      return;
    }
    end_call();
  } else {
    show_candidate();
  }
  on_marker(marker);
}

void OutputParser::start_candidate() {
  candidate_ = spelling(Marker::kToolCall);
  name_.clear();
  state_ = State::kName;
}

// False if the candidate grew too long, and was shown.
bool OutputParser::keep_candidate(std::string_view text) {
  if (begun_call()) return true;
  candidate_ += text;
  if (candidate_.size() <= kMostCandidateBytes) return true;
  show_candidate();
  return false;
}

void OutputParser::show_candidate() {
  state_ = block_;
  quoting_ = true;
  const std::string text = std::move(candidate_);
  candidate_.clear();
  show(text);
}

std::optional<std::string> OutputParser::candidate_name() const {
  const std::string_view name = trimmed(name_);
  return name.empty() ? std::nullopt : std::optional<std::string>(name);
}

void OutputParser::name_text(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool after_name = !name_.empty() && is_space(name_.back()) && !only_space(name_);
    name_ += c;
    if (!(is_space(c) || (is_name(c) && !after_name)) || candidate_.size() + i >= kMostCandidateBytes) {
      candidate_ += text.substr(0, i + 1);
      show_candidate();
      return show(text.substr(i + 1));
    }
  }
  candidate_ += text;
}

void OutputParser::key_text(std::string_view text) {
  key_ += text;
  if (!begun_call()) {
    keep_candidate(text);
  } else if (key_.size() > kMostKeyBytes) {
    // Not a key any more.
    between_ = std::string(spelling(Marker::kArgKey)) + key_;
    end_call();
  }
}

void OutputParser::after_key_text(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  if (!keep_candidate(text.substr(0, first))) return show(text.substr(first));
  text.remove_prefix(first);
  if (text.empty()) return;
  if (begun_call()) {
    begin_value();
    return value_text(text);
  }
  candidate_ += text;
  show_candidate();
}

void OutputParser::value_text(std::string_view text) {
  if (!held_close_.empty()) {
    const bool goes_on = only_space(text) && held_close_.size() + text.size() <= kMostSpaceBytes;
    held_close_ += text;
    if (goes_on) return;
    const std::string held = std::move(held_close_);
    held_close_.clear();
    return on_text(held);
  }
  add_to_value(text);
}

void OutputParser::between_text(std::string_view text) {
  between_ += text;
  if (between_.size() > kMostBetweenBytes) end_call();
}

void OutputParser::begin_value() {
  state_ = State::kValue;
  held_close_.clear();
  writer_.begin(trimmed(key_), tools_->type(*candidate_name(), trimmed(key_)));
}

void OutputParser::add_to_value(std::string_view text) {
  if (text.empty()) return;
  if (!begun_call()) {
    const size_t silent = writer_.silent_bytes(text);
    if (!keep_candidate(text.substr(0, silent))) return show(text.substr(silent));
    if (silent < text.size()) begin_call();
  }
  std::string fragment;
  writer_.add(text, fragment);
  emit(Kind::kToolArguments, fragment);
}

void OutputParser::end_value() {
  add_to_value(held_close_);
  held_close_.clear();
  if (!begun_call()) begin_call();
  std::string fragment;
  writer_.end(fragment);
  emit(Kind::kToolArguments, fragment);
  between_.clear();
  state_ = State::kBetween;
}

void OutputParser::begin_call() {
  if (block_ == State::kReasoning) {
    const State state = state_;
    enter(State::kContent);
    state_ = state;
  }
  quoting_ = false;
  ++calls_;
  call_begun_ = true;
  candidate_.clear();
  emit(Kind::kToolStart, *candidate_name());
}

// What stood after the last argument and did not belong to the call is content.
void OutputParser::end_call() {
  std::string fragment;
  writer_.close(fragment);
  emit(Kind::kToolArguments, fragment);
  emit(Kind::kToolEnd, {});
  call_begun_ = false;
  state_ = block_;
  const std::string text = std::move(between_);
  between_.clear();
  show(text);
}

}  // namespace baton::text
