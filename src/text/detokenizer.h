// Ids to text as they arrive. What is handed out is whole characters; joined, the pieces are what Tokenizer::decode gives for all ids.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace baton::text {

// One text; belongs to one thread at a time. At most three bytes wait in it.
class Detokenizer {
 public:
  // `tokenizer` must outlive this.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = false) : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // Appends what can be said with one id more: nothing while a character is incomplete, U+FFFD for what cannot become one.
  void add(int32_t id, std::string& text);
  // At the end: appends U+FFFD for a character that never was completed. The next add() begins another text.
  void finish(std::string& text);

  // Bytes that wait for the rest of their character.
  std::string_view pending() const { return pending_; }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::string pending_;
};

}  // namespace baton::text
