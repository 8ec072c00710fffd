#include "text/pretokenizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include "text/json_component.h"
#include "text/unicode_ranges.h"

namespace baton::text {
namespace {

constexpr size_t kMostSteps = 64;
constexpr std::string_view kSupported =
    "Split, ByteLevel, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit and Sequence of these";

bool is_number(char32_t c) { return (UnicodeClasses::get().of(c) & kNumber) != 0; }
bool is_space(char32_t c) { return (UnicodeClasses::get().of(c) & kSpace) != 0; }

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  if (contains(young_punctuation(), c)) return false;
  if (c == 0x166D || c == 0x111C9) return true;  // were punctuation in the reference's table
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

Result<SplitBehavior> read_behavior(const JsonComponent& c, SplitBehavior otherwise) {
  if (c.find("behavior") == nullptr) return otherwise;
  BATON_ASSIGN(const std::string name, c.text("behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return c.wrong("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const boost::json::value& value, std::string path) {
  PreTokenizer p;
  if (!value.is_null()) BATON_TRY(p.add(value, path));
  if (!p.byte_level_)
    return Error{Error::Kind::kUnsupported,
                 fmt::format("{}: no ByteLevel step; only byte-level tokenizers are supported, not those of SentencePiece's kind", path)};
  if (p.only_patterns_ && p.patterns_.size() == 1) p.rule_ = word_rule_of(p.patterns_.front());
  return p;
}

Status PreTokenizer::add(const boost::json::value& value, std::string path) {
  BATON_ASSIGN(const JsonComponent c, JsonComponent::of(value, std::move(path)));
  BATON_ASSIGN(const std::string type, c.type());
  if (type == "Sequence") {
    BATON_ASSIGN(const auto* list, c.array("pretokenizers"));
    for (size_t i = 0; i < list->size(); ++i) BATON_TRY(add((*list)[i], fmt::format("{}[{}]", c.path_to("pretokenizers"), i)));
    return {};
  }
  if (byte_level_)
    return Error{Error::Kind::kUnsupported, fmt::format("{}: '{}' behind ByteLevel; ByteLevel must be the last step", c.path(), type)};
  if (steps_.size() >= kMostSteps) return Error{Error::Kind::kInvalid, fmt::format("{}: more than {} steps", c.path(), kMostSteps)};
  if (type == "Split") return add_split(c);
  if (type == "ByteLevel") return add_byte_level(c);
  only_patterns_ = false;
  if (type == "Digits") {
    BATON_ASSIGN(const bool single, c.flag("individual_digits", false));
    steps_.emplace_back(Split{&is_number, single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
  } else if (type == "Punctuation") {
    BATON_ASSIGN(const SplitBehavior behavior, read_behavior(c, SplitBehavior::kIsolated));
    steps_.emplace_back(Split{&is_punctuation, behavior, false});
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(Split{&is_space, SplitBehavior::kRemoved, false});
  } else if (type == "Whitespace") {
    // The pattern \w+|[^\w\s]+ with another \w than in patterns of the file: with joiners, letter numbers and circled letters.
    const std::string word = class_items(word_ranges());
    BATON_ASSIGN(Regex words, Regex::compile(fmt::format(R"([{0}]+|[^{0}\s]+)", word)));
    steps_.emplace_back(Split{std::move(words), SplitBehavior::kRemoved, true});
  } else if (type == "CharDelimiterSplit") {
    BATON_ASSIGN(std::string delimiter, c.text("delimiter"));
    steps_.emplace_back(Split{std::move(delimiter), SplitBehavior::kRemoved, false});
  } else {
    return c.unknown_type("pre-tokenizer", type, kSupported);
  }
  return {};
}

Status PreTokenizer::add_split(const JsonComponent& c) {
  BATON_ASSIGN(const SplitBehavior behavior, read_behavior(c, SplitBehavior::kIsolated));
  BATON_ASSIGN(const bool invert, c.flag("invert", false));
  BATON_ASSIGN(SplitPattern pattern, read_pattern(c));
  // A known pattern covers every text without gaps: whether pieces are called matches or gaps does not matter to "Isolated".
  if (behavior == SplitBehavior::kIsolated && std::holds_alternative<Regex>(pattern)) {
    BATON_ASSIGN(const JsonComponent source, c.component("pattern"));
    BATON_ASSIGN(std::string text, source.text("Regex"));
    patterns_.push_back(std::move(text));
  } else {
    only_patterns_ = false;
  }
  steps_.emplace_back(Split{std::move(pattern), behavior, invert});
  return {};
}

Status PreTokenizer::add_byte_level(const JsonComponent& c) {
  BATON_ASSIGN(const bool prefix, c.flag("add_prefix_space", true));
  BATON_ASSIGN(const bool use_regex, c.flag("use_regex", true));
  byte_level_ = true;
  if (prefix) {
    only_patterns_ = false;
    steps_.emplace_back(PrefixSpace{});
  }
  if (use_regex) {
    const std::string_view pattern = pattern_of(WordRule::kGpt2);
    BATON_ASSIGN(Regex words, Regex::compile(pattern));
    steps_.emplace_back(Split{std::move(words), SplitBehavior::kIsolated, false});
    patterns_.emplace_back(pattern);
  }
  return {};
}

Status PreTokenizer::split(std::string_view text, Words& words) const {
  words.made.clear();
  words.words.assign(1, text);
  for (const Step& step : steps_) {
    words.before.swap(words.words);
    words.words.clear();
    for (const std::string_view word : words.before) {
      if (const auto* split = std::get_if<Split>(&step)) {
        BATON_TRY(split->apply(word, words.words));
      } else if (word.front() == ' ') {
        words.words.push_back(word);
      } else {
        words.words.push_back(words.made.emplace_back(" " + std::string(word)));
      }
    }
  }
  return {};
}

}  // namespace baton::text
