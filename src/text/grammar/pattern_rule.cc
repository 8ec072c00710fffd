#include "text/grammar/pattern_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr char32_t kLast = 0x10FFFF;

struct Range {
  char32_t first, last;
};

// A set of characters: ranges in order and apart.
class CharacterSet {
 public:
  CharacterSet() = default;
  CharacterSet(std::initializer_list<Range> ranges) : ranges_(ranges) { tidy(); }

  void add(const CharacterSet& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
    tidy();
  }
  CharacterSet inverted() const {
    CharacterSet result;
    char32_t next = 0;
    for (const Range& r : ranges_) {
      if (r.first > next) result.ranges_.push_back({next, r.first - 1});
      next = r.last + 1;
    }
    if (next <= kLast) result.ranges_.push_back({next, kLast});
    return result;
  }
  CharacterSet without(const CharacterSet& other) const {
    CharacterSet either = inverted();
    either.add(other);
    return either.inverted();
  }
  bool has(char32_t c) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [c](const Range& r) { return r.first <= c && c <= r.last; });
  }
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  void tidy() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
    std::vector<Range> result;
    for (const Range& r : ranges_) {
      if (!result.empty() && r.first <= result.back().last + 1)
        result.back().last = std::max(result.back().last, r.last);
      else
        result.push_back(r);
    }
    ranges_ = std::move(result);
  }

  std::vector<Range> ranges_;
};

const CharacterSet kDigits = {{'0', '9'}};
const CharacterSet kWord = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}};
const CharacterSet kSpace = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                             {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharacterSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
const CharacterSet kSurrogates = {{0xD800, 0xDFFF}};
const CharacterSet kEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};  // what JSON does not write as it is
const CharacterSet kUnprintable = {{0, 8}, {11, 12}, {14, 31}};
constexpr std::pair<char, const char*> kShortEscapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "b"}, {'\f', "f"},
                                                          {'\n', "n"},   {'\r', "r"},    {'\t', "t"}};

void append_in_class(std::string& out, char32_t c) {
  // With four digits: after \x the library reads on as long as there are any.
  if (c < 0x20 || c == 0x7F || (c >= 0xD800 && c <= 0xDFFF)) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    return;
  }
  if (c < 0x80 && std::string_view("\\]^-[\"").find(static_cast<char>(c)) != std::string_view::npos) out += '\\';
  append_utf8(out, c);
}

class Rewriter {
 public:
  Rewriter(std::string_view pattern, bool in_json)
      : begin_(pattern.data()), at_(pattern.data()), end_(pattern.data() + pattern.size()), in_json_(in_json) {}

  Result<std::string> run() {
    bool empty = true;  // the alternative so far
    while (at_ < end_) {
      const char c = *at_;
      if (c == '|' || c == ')') {
        if (empty) out_ += " \"\"";
        out_ += c == '|' ? " |" : " )";
        ++at_;
        empty = c == '|';
        if (c == ')') BATON_TRY(copy_quantifier());
        continue;
      }
      if (c == '^' || c == '$') {
        BATON_TRY(skip_anchor());
        continue;
      }
      if (c == '(') {
        BATON_TRY(open_group());
        empty = true;
        continue;
      }
      empty = false;
      if (c == '\\') {
        ++at_;
        BATON_ASSIGN(const CharacterSet set, escape(false));
        BATON_TRY(put(set));
      } else if (c == '[') {
        ++at_;
        BATON_ASSIGN(const CharacterSet set, character_class());
        BATON_TRY(put(set));
      } else if (c == '.') {
        ++at_;
        BATON_TRY(put(kLineEnds.inverted()));
      } else if (c == '*' || c == '+' || c == '?') {
        return wrong("repeats what is not there");
      } else {
        const char32_t literal = read_valid_char(at_);
        BATON_TRY(put({{literal, literal}}));
      }
      BATON_TRY(copy_quantifier());
    }
    if (empty) out_ += " \"\"";
    return out_;
  }

 private:
  static Error wrong(const std::string& what) { return {Error::Kind::kInvalid, fmt::format("a pattern {}", what)}; }

  // The whole output is held to the pattern, so that an anchor at an end says nothing more, and one inside cannot be kept.
  Status skip_anchor() {
    const bool first = at_ == begin_ || at_[-1] == '|' || at_[-1] == '(' || at_[-1] == ':';
    const bool last = at_ + 1 == end_ || at_[1] == '|' || at_[1] == ')';
    if (*at_ == '^' ? !first : !last)
      return Error{Error::Kind::kUnsupported, fmt::format("a pattern has '{}' inside, which output is not held to", *at_)};
    ++at_;
    return {};
  }

  // "(", "(?:" or "(?<name>".
  Status open_group() {
    out_ += " (";
    if (++at_ == end_ || *at_ != '?') return {};
    ++at_;
    if (at_ < end_ && *at_ == ':') {
      ++at_;
      return {};
    }
    const char* close = std::find(at_, end_, '>');
    if (end_ - at_ < 2 || *at_ != '<' || at_[1] == '=' || at_[1] == '!' || close == end_)
      return Error{Error::Kind::kUnsupported, "a pattern looks ahead or behind, which output is not held to"};
    at_ = close + 1;
    return {};
  }

  // "*", "+", "?", "{2}", "{2,}", "{2,5}"; lazy ones mean the same for whole outputs.
  Status copy_quantifier() {
    if (at_ == end_) return {};
    if (*at_ == '*' || *at_ == '+' || *at_ == '?') {
      out_ += *at_++;
    } else if (*at_ == '{') {
      const char* p = at_ + 1;
      const auto digits = [&] {
        const char* begin = p;
        while (p < end_ && *p >= '0' && *p <= '9') ++p;
        return p > begin;
      };
      if (!digits()) return {};  // a brace like any other character
      if (p < end_ && *p == ',') {
        ++p;
        digits();
      }
      if (p == end_ || *p != '}') return {};
      out_.append(at_, p + 1);
      at_ = p + 1;
    } else {
      return {};
    }
    if (at_ < end_ && *at_ == '?') ++at_;
    if (at_ < end_ && (*at_ == '*' || *at_ == '+' || *at_ == '?')) return wrong("repeats a repetition");
    return {};
  }

  Result<char32_t> hexadecimal(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < end_ ? static_cast<char>(*at_ | 0x20) : ' ';
      if (at_ < end_ && *at_ >= '0' && *at_ <= '9')
        value = value * 16 + static_cast<char32_t>(*at_ - '0');
      else if (c >= 'a' && c <= 'f')
        value = value * 16 + static_cast<char32_t>(c - 'a' + 10);
      else
        return wrong("has an escape without its hexadecimal digits");
    }
    return value;
  }

  // Behind a backslash.
  Result<CharacterSet> escape(bool in_class) {
    if (at_ == end_) return wrong("ends with a backslash");
    const char32_t c = read_valid_char(at_);
    const auto one = [](char32_t literal) { return CharacterSet{{literal, literal}}; };
    switch (c) {
      case 'd': return kDigits;
      case 'D': return kDigits.inverted();
      case 'w': return kWord;
      case 'W': return kWord.inverted();
      case 's': return kSpace;
      case 'S': return kSpace.inverted();
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case '0': return one(0);
      case 'x': {
        BATON_ASSIGN(const char32_t value, hexadecimal(2));
        return one(value);
      }
      case 'u': {
        if (at_ == end_ || *at_ != '{') {
          BATON_ASSIGN(const char32_t value, hexadecimal(4));
          return one(value);
        }
        const char* close = std::find(at_, end_, '}');
        ++at_;
        if (close == end_ || close - at_ > 6) return wrong("has an escape without its hexadecimal digits");
        BATON_ASSIGN(const char32_t value, hexadecimal(static_cast<int>(close - at_)));
        ++at_;
        if (value > kLast) return wrong("names a character beyond U+10FFFF");
        return one(value);
      }
      case 'b':
        if (in_class) return one('\b');
        return wrong("has a word boundary, which output is not held to");
      case 'B': return wrong("has a word boundary, which output is not held to");
      case 'p':
      case 'P':
      case 'k':
      case 'c': return wrong(fmt::format("has the escape \\{}, which output is not held to", static_cast<char>(c)));
      default:
        if (c >= '1' && c <= '9') return wrong("refers back to a group, which output is not held to");
        return one(c);
    }
  }

  // Behind the bracket.
  Result<CharacterSet> character_class() {
    const bool inverted = at_ < end_ && *at_ == '^';
    if (inverted) ++at_;
    CharacterSet set;
    while (at_ < end_ && *at_ != ']') {
      BATON_ASSIGN(const CharacterSet first, class_item());
      const bool range = end_ - at_ > 1 && *at_ == '-' && at_[1] != ']';
      if (!range) {
        set.add(first);
        continue;
      }
      ++at_;
      BATON_ASSIGN(const CharacterSet last, class_item());
      const auto single = [](const CharacterSet& s) { return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last; };
      if (!single(first) || !single(last) || first.ranges()[0].first > last.ranges()[0].first)
        return wrong("has a range from a larger to a smaller character");
      set.add({{first.ranges()[0].first, last.ranges()[0].first}});
    }
    if (at_ == end_) return wrong("has a character class that does not end");
    ++at_;
    return inverted ? set.inverted() : set;
  }
  Result<CharacterSet> class_item() {
    if (*at_ == '\\') {
      ++at_;
      return escape(true);
    }
    const char32_t c = read_valid_char(at_);
    return CharacterSet{{c, c}};
  }

  // One character of the set.
  Status put(const CharacterSet& set) {
    const CharacterSet plain = in_json_ ? set.without(kSurrogates).without(kEscaped) : set.without(kSurrogates).without(kUnprintable);
    std::string escapes;
    // A class that is open to the end is not meant for these, and alternatives inside of repetitions make masks slow.
    if (in_json_ && (plain.ranges().empty() || !set.has(kLast)))
      for (const auto& [c, name] : kShortEscapes)
        if (set.has(static_cast<char32_t>(c))) escapes += name;
    if (plain.ranges().empty() && escapes.empty()) return wrong("asks for a character that cannot be written");
    if (plain.ranges().empty())
      out_ += fmt::format(" (\"\\\\\" [{}])", escapes);
    else if (escapes.empty())
      out_ += " " + class_of(plain);
    else
      out_ += fmt::format(" ({} | \"\\\\\" [{}])", class_of(plain), escapes);
    return {};
  }

  // What is open to the end is written by what is missing: the library is much faster with that.
  static std::string class_of(const CharacterSet& set) {
    const bool inverted = set.has(kLast);
    std::string out = inverted ? "[^" : "[";
    const CharacterSet listed = inverted ? set.inverted() : set;
    for (const Range& r : listed.ranges()) {
      append_in_class(out, r.first);
      if (r.last > r.first) out += '-';
      if (r.last > r.first) append_in_class(out, r.last);
    }
    return out + "]";
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  bool in_json_;
  std::string out_;  // terms of EBNF, with a space before each
};

}  // namespace

Result<std::string> pattern_rule(std::string_view pattern, bool in_json) {
  if (!valid_utf8(pattern)) return Error{Error::Kind::kInvalid, "a pattern is not valid UTF-8"};
  return Rewriter(pattern, in_json).run();
}

std::string length_rule(int64_t least, std::optional<int64_t> most) {
  return fmt::format("[^\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\\ud800-\\udfff]{{{},{}}}", least, most ? std::to_string(*most) : "");
}

}  // namespace baton::text
