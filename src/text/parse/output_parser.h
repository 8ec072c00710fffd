// What a model writes, told apart as it arrives: reasoning, content, tool calls. One state machine for the markup of GLM.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/parse/argument_types.h"
#include "text/parse/argument_writer.h"
#include "text/parse/markers.h"

namespace baton::text {

enum class FinishReason : uint8_t { kStop, kLength, kToolCalls, kAbort };
std::string_view name_of(FinishReason reason);  // as in the OpenAI API: "stop", "length", "tool_calls"; "abort"

struct OutputEvent {
  enum class Kind : uint8_t { kReasoning, kContent, kToolStart, kToolArguments, kToolEnd, kFinish };
  Kind kind;
  int32_t tool_index = -1;  // of the kTool kinds: 0, 1, ... in order
  std::string text;         // what to append; the function's name for kToolStart
  FinishReason finish = FinishReason::kStop;
  bool operator==(const OutputEvent&) const = default;
};

// Appends `event`; as part of the last one if both are deltas of the same thing. Two parses are the same if their events, merged so, are
// equal.
void append_merged(std::vector<OutputEvent>& events, OutputEvent event);

// One choice of one request. The events do not depend on how the output was cut into calls of add() and add_text(), once merged. They come
// as early as they are certain: text waits for at most a started marker, white space for the text after it, and what follows <tool_call>
// until the first value begins. Joined, the texts of kToolArguments of a call are one JSON object. All text handed out is valid UTF-8.
//
// The rules, where the model is sloppy:
// * White space around blocks is layout, but the indentation of a block's first line stays.
// * <think> opens reasoning only before any content; at the beginning of reasoning it repeats the prompt's; elsewhere it is text. </think>
//   outside of reasoning is dropped; so is </tool_call> without a call, unless the <tool_call> before it was taken for text.
// * A call needs a name of A-Z a-z 0-9 _ . - and, if it has any argument, a first value that began. What does not get there was a mention,
//   and is text of the block that it stands in. From then on it is a call: it ends reasoning, and what is wrong inside is repaired.
// * Inside a value only </arg_value> is a marker; but a </tool_call> at the very end of the output ends value and call. Text between
//   arguments is dropped if the call goes on, else it is content.
// * Output that was cut inside of a call: the arguments so far, completed to JSON.
//
// Takes linear time. Holds less than 16 KiB, and a value that is not a string up to ArgumentWriter::kMostValueBytes.
class OutputParser {
 public:
  struct Options {
    bool starts_in_reasoning = false;      // OutputMarkup::opens_reasoning of the rendered prompt
    const ToolTypes* tools = nullptr;      // null or empty: calls are text. Must outlive the parser
    const Tokenizer* tokenizer = nullptr;  // needed for add(); must outlive the parser
    bool skip_special = true;              // special tokens that are no marker do not show
  };
  OutputParser(const OutputMarkup& markup, const Options& options);

  // The next token. Events are appended.
  void add(int32_t id, std::vector<OutputEvent>& events);
  // The next stretch of ordinary text; may end inside of a character. Markers that have a token of their own are not looked for in it.
  void add_text(std::string_view text, std::vector<OutputEvent>& events);
  // Once, at the end. `engine` is why generation ended, never kToolCalls; the event says kToolCalls if it was kStop and a call was emitted.
  void finish(FinishReason engine, std::vector<OutputEvent>& events);

  // Whether what comes next is reasoning; to count reasoning tokens.
  bool in_reasoning() const { return block_ == State::kReasoning; }

 private:
  enum class State : uint8_t { kReasoning, kContent, kName, kKey, kAfterKey, kValue, kBetween };

  void scan(std::string_view text);
  void on_text(std::string_view text);
  void on_marker(Marker marker);
  void block_marker(Marker marker);
  void call_marker(Marker marker);

  void show(std::string_view text);
  void wait(std::string_view space);
  void enter(State block);

  void name_text(std::string_view text);
  void key_text(std::string_view text);
  void after_key_text(std::string_view text);
  void value_text(std::string_view text);
  void between_text(std::string_view text);

  void start_candidate();
  bool keep_candidate(std::string_view text);
  void show_candidate();
  std::optional<std::string> candidate_name() const;
  void begin_call();
  void end_call();
  void begin_value();
  void add_to_value(std::string_view text);
  void end_value();

  void emit(OutputEvent::Kind kind, std::string_view text);
  bool begun_call() const { return call_begun_; }

  const ToolTypes* tools_;
  const Tokenizer* tokenizer_;
  OutputMarkup markup_;
  MarkerScanner scanner_;
  std::optional<Detokenizer> detokenizer_;
  std::string half_character_;
  std::vector<OutputEvent>* events_ = nullptr;  // where the present call puts them

  State state_;
  State block_;               // kReasoning or kContent: where a call stands, until it begins
  bool block_begun_ = false;  // the block showed text
  bool quoting_ = false;      // a <tool_call> was shown as text: so is its close
  std::string space_;         // white space that waits for the text after it
  bool space_shown_ = false;  // the run of white space was too long to wait

  std::string candidate_;  // markup and text since <tool_call>, until the call begins
  std::string name_;       // as it stands there, with white space around
  std::string key_;
  std::string held_close_;  // inside a value: </tool_call> and white space after it
  std::string between_;     // text between arguments
  bool call_begun_ = false;
  int32_t calls_ = 0;
  ArgumentWriter writer_;
};

}  // namespace baton::text
