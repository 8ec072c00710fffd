#include "text/grammar/json_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <vector>

#include "text/utf8.h"

namespace baton::text {
namespace json = boost::json;

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

void append_in_class(std::string& out, char32_t c) {
  if (c < 0x80 && std::string_view("\\]^-[").find(static_cast<char>(c)) != std::string_view::npos) out += '\\';
  append_utf8(out, c);
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : at_(pattern.data()), end_(pattern.data() + pattern.size()) {}

  Result<std::string> run() {
    while (at_ < end_) {
      const char c = *at_;
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
      } else if (c == '(') {
        copy_group();
      } else if (std::string_view("^$|)*+?").find(c) != std::string_view::npos || (c == '{' && copy_count())) {
        if (c != '{') {
          out_ += c;
          ++at_;
        }
      } else {
        const char32_t literal = read_valid_char(at_);
        BATON_TRY(put({{literal, literal}}));
      }
    }
    return out_;
  }

 private:
  static Error wrong(const std::string& what) { return {Error::Kind::kInvalid, fmt::format("a pattern {}", what)}; }

  // "(", "(?:" or "(?<name>"; others the library refuses.
  void copy_group() {
    out_ += *at_++;
    if (at_ == end_ || *at_ != '?') return;
    while (at_ < end_) {
      const char c = *at_++;
      out_ += c;
      if (c == ':' || c == '>' || c == '=' || c == '!') return;
    }
  }

  // "{2}", "{2,}", "{2,5}".
  bool copy_count() {
    const char* p = at_ + 1;
    const auto digits = [&] {
      const char* begin = p;
      while (p < end_ && *p >= '0' && *p <= '9') ++p;
      return p > begin;
    };
    if (!digits()) return false;
    if (p < end_ && *p == ',') {
      ++p;
      digits();
    }
    if (p == end_ || *p != '}') return false;
    out_.append(at_, p + 1);
    at_ = p + 1;
    return true;
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

  // One character of the set, as JSON writes it.
  Status put(const CharacterSet& set) {
    const CharacterSet plain = set.without(kSurrogates).without(kEscaped);
    std::string escapes;
    constexpr std::pair<char, const char*> kShort[] = {{'"', "\""}, {'\\', "\\\\"}, {'\b', "b"}, {'\f', "f"},
                                                       {'\n', "n"}, {'\r', "r"},    {'\t', "t"}};
    for (const auto& [c, name] : kShort)
      if (set.has(static_cast<char32_t>(c))) escapes += name;
    if (plain.ranges().empty() && escapes.empty()) return wrong("asks for a character that JSON strings have no short form for");
    std::string characters;
    for (const Range& r : plain.ranges()) {
      append_in_class(characters, r.first);
      if (r.last > r.first) characters += '-';
      if (r.last > r.first) append_in_class(characters, r.last);
    }
    if (escapes.empty())
      out_ += fmt::format("[{}]", characters);
    else if (characters.empty())
      out_ += fmt::format("(\\\\[{}])", escapes);
    else
      out_ += fmt::format("([{}]|\\\\[{}])", characters, escapes);
    return {};
  }

  const char* at_;
  const char* end_;
  std::string out_;
};

Status rewrite_parts(json::object& schema);

Status rewrite(json::value& value) {
  if (!value.is_object()) return {};
  json::object& schema = value.get_object();
  if (const json::value* pattern = schema.if_contains("pattern"); pattern != nullptr && pattern->is_string()) {
    BATON_ASSIGN(std::string rewritten, json_pattern(std::string_view(pattern->get_string())));
    schema["pattern"] = rewritten;
  } else if (schema.contains("minLength") || schema.contains("maxLength")) {
    const auto bound = [&](const char* key) {
      const json::value* n = schema.if_contains(key);
      return n == nullptr ? std::string() : std::to_string(n->get_int64());
    };
    const std::string least = bound("minLength"), most = bound("maxLength");
    BATON_ASSIGN(std::string rewritten, json_pattern(fmt::format("^[\\s\\S]{{{},{}}}$", least.empty() ? "0" : least, most)));
    schema["pattern"] = rewritten;
    schema.erase("minLength");
    schema.erase("maxLength");
  }
  return rewrite_parts(schema);
}

Status rewrite_parts(json::object& schema) {
  for (const char* key : {"properties", "patternProperties", "$defs", "definitions"})
    if (json::value* parts = schema.if_contains(key); parts != nullptr && parts->is_object())
      for (auto& part : parts->get_object()) BATON_TRY(rewrite(part.value()));
  for (const char* key : {"items", "additionalProperties", "propertyNames"})
    if (json::value* part = schema.if_contains(key)) BATON_TRY(rewrite(*part));
  for (const char* key : {"anyOf", "oneOf", "allOf", "prefixItems"})
    if (json::value* parts = schema.if_contains(key); parts != nullptr && parts->is_array())
      for (json::value& part : parts->get_array()) BATON_TRY(rewrite(part));
  return {};
}

}  // namespace

Result<std::string> json_pattern(std::string_view pattern) {
  if (!valid_utf8(pattern)) return Error{Error::Kind::kInvalid, "a pattern is not valid UTF-8"};
  return Rewriter(pattern).run();
}

std::string any_characters(int64_t least, std::optional<int64_t> most) {
  // To U+D7FF, and from U+E000 to U+10FFFF.
  return fmt::format("[\\t\\n\\r -\xED\x9F\xBF\xEE\x80\x80-\xF4\x8F\xBF\xBF]{{{},{}}}", least, most ? std::to_string(*most) : "");
}

Result<json::value> with_json_strings(const json::value& schema) {
  json::value result = schema;
  BATON_TRY(rewrite(result));
  return result;
}

}  // namespace baton::text
