// The pre-tokenizer of tokenizer.json: cuts text into the words that BPE then merges, one by one.
#pragma once

#include <boost/json/fwd.hpp>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/split.h"
#include "text/word_scanner.h"

namespace baton::text {

class PreTokenizer {
 public:
  // Supported: Split, ByteLevel (exactly one, and last), Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, Sequence.
  static Result<PreTokenizer> from_json(const boost::json::value& value, std::string path);

  // The rule that WordScanner knows, if the whole pre-tokenizer comes to one: then split() need not be called.
  std::optional<WordRule> word_rule() const { return rule_; }

  // Makes the rule above unknown, so that everything goes through the pattern.
  void forget_word_rule() { rule_.reset(); }

  // What split() returns lives here, in part.
  struct Words {
    std::vector<std::string_view> words;
    std::vector<std::string_view> before;  // of the previous step
    std::deque<std::string> made;          // words that are not part of the text
  };

  // The words of `text` (valid UTF-8, not empty), valid until the next call with the same `words` and while `text` lives.
  Status split(std::string_view text, Words& words) const;

 private:
  // The first half of ByteLevel. The other half, bytes written as characters, is implied everywhere: BPE merges bytes here.
  struct PrefixSpace {};
  using Step = std::variant<Split, PrefixSpace>;

  Status add(const boost::json::value& value, std::string path);
  Status add_split(const class JsonComponent& c);
  Status add_byte_level(const class JsonComponent& c);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  std::vector<std::string> patterns_;  // of the steps, where all are isolating patterns; to recognise a rule
  bool only_patterns_ = true;
  std::optional<WordRule> rule_;
};

}  // namespace baton::text
