#include "text/template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/template/characters.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_ascii_digit(c) || static_cast<uint8_t>(c) >= 0x80;
}
// \s of a regular expression of Python, and so what '-' takes away.
size_t skip_space(std::string_view text, size_t at) {
  const char* p = text.data() + at;
  const char* const end = text.data() + text.size();
  while (p < end) {
    const char* next = p;
    if (!is_space(read_valid_char(next))) break;
    p = next;
  }
  return static_cast<size_t>(p - text.data());
}

std::string with_plain_line_ends(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag(at_);
      if (tag == std::string::npos) {
        add_data(source_.substr(at_));
        at_ = source_.size();
        break;
      }
      BATON_TRY(read_tag(tag));
    }
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  size_t find_tag(size_t from) const {
    for (size_t i = source_.find('{', from); i != std::string::npos && i + 1 < source_.size(); i = source_.find('{', i + 1))
      if (const char c = source_[i + 1]; c == '{' || c == '%' || c == '#') return i;
    return std::string::npos;
  }

  // The text before a tag whose sign ('-', '+' or neither) stands behind its opening.
  void add_text_before(size_t tag, char sign, bool is_output) {
    std::string text = source_.substr(at_, tag - at_);
    count_lines(text);
    if (sign == '-') {
      // What is_space takes at the end.
      size_t keep = 0;
      for (size_t i = 0; i < text.size();) {
        const char* p = text.data() + i;
        const bool space = is_space(read_valid_char(p));
        i = static_cast<size_t>(p - text.data());
        if (!space) keep = i;
      }
      text.resize(keep);
    } else if (sign != '+' && !is_output) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string::npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && skip_space(text, line_begin) == text.size()) text.resize(line_begin);
    }
    add_data(std::move(text));
  }

  Status read_tag(size_t tag) {
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : ' ';
    const size_t inside = tag + (sign == ' ' ? 2 : 3);
    add_text_before(tag, sign, kind == '{');
    if (kind == '#') return read_comment(inside);
    if (kind == '%')
      if (const size_t raw = raw_begin(inside); raw != 0) return read_raw(raw);
    add(kind == '{' ? Token::Kind::kOutputBegin : Token::Kind::kTagBegin, "");
    at_ = inside;
    return read_inside(kind == '{');
  }

  // Behind the end of a tag whose closing mark ('%' or '#' and '}') begins at `at`, where `sign` stood before the mark.
  size_t behind_end(size_t at, char sign) const {
    at += 2;
    if (sign == '-') return skip_space(source_, at);
    if (sign != '+' && at < source_.size() && source_[at] == '\n') return at + 1;
    return at;
  }

  Status read_comment(size_t inside) {
    const size_t end = source_.find("#}", inside);
    if (end == std::string::npos) return wrong("a comment has no end '#}'");
    const char sign = end > inside && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : ' ';
    jump_to(at_, behind_end(end, sign));
    return {};
  }

  // Where the text of {% raw %} begins, if that is what stands here; 0 otherwise.
  size_t raw_begin(size_t inside) const {
    size_t at = skip_space(source_, inside);
    if (source_.compare(at, 3, "raw") != 0) return 0;
    at = skip_space(source_, at + 3);
    if (source_.compare(at, 2, "%}") == 0) return at + 2;
    if (source_.compare(at, 3, "-%}") == 0) return skip_space(source_, at + 3);
    return 0;
  }

  Status read_raw(size_t begin) {
    jump_to(at_, begin);
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char sign = tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : ' ';
      size_t at = skip_space(source_, tag + (sign == ' ' ? 2 : 3));
      if (source_.compare(at, 6, "endraw") != 0) continue;
      at = skip_space(source_, at + 6);
      const char end_sign = at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : ' ';
      if (end_sign != ' ') ++at;
      if (source_.compare(at, 2, "%}") != 0) continue;
      add_text_before(tag, sign, false);
      jump_to(at_, behind_end(at, end_sign));
      return {};
    }
    return wrong("{% raw %} has no {% endraw %}");
  }

  // The tokens of a tag, up to its end.
  Status read_inside(bool is_output) {
    std::string open;  // brackets that wait for their ends
    while (true) {
      const size_t token = skip_space(source_, at_);
      jump_to(at_, token);
      if (at_ >= source_.size()) return wrong(fmt::format("a tag that begins with '{}' has no end", is_output ? "{{" : "{%"));
      if (open.empty() && read_end(is_output)) return {};
      const char c = source_[at_];
      if (is_ascii_digit(c)) {
        BATON_TRY(read_number());
      } else if (is_name_char(c)) {
        size_t end = at_;
        while (end < source_.size() && is_name_char(source_[end])) ++end;
        take(Token::Kind::kName, end);
      } else if (c == '\'' || c == '"') {
        BATON_TRY(read_string());
      } else {
        BATON_TRY(read_operator(open));
      }
    }
  }

  bool read_end(bool is_output) {
    const char sign = source_[at_] == '-' || (!is_output && source_[at_] == '+') ? source_[at_] : ' ';
    const size_t mark = at_ + (sign == ' ' ? 0 : 1);
    if (source_.compare(mark, 2, is_output ? "}}" : "%}") != 0) return false;
    add(is_output ? Token::Kind::kOutputEnd : Token::Kind::kTagEnd, "");
    // Line ends behind {{ }} stay.
    jump_to(at_, is_output ? (sign == '-' ? skip_space(source_, mark + 2) : mark + 2) : behind_end(mark, sign));
    return true;
  }

  Status read_operator(std::string& open) {
    const std::string_view rest = std::string_view(source_).substr(at_);
    const auto* op = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view o) { return rest.starts_with(o); });
    if (op == kOperators.end()) return wrong(fmt::format("the character '{}' has no meaning here", rest.substr(0, 1)));
    const char c = rest[0];
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) return wrong(fmt::format("'{}' was never opened", c));
      if (open.back() != c) return wrong(fmt::format("'{}' stands where '{}' is expected", c, open.back()));
      open.pop_back();
    }
    take(Token::Kind::kOperator, at_ + op->size());
    return {};
  }

  // Digits of `digits` with single underscores between them; where they end.
  size_t digits_end(size_t at, std::string_view digits) const {
    while (at < source_.size() &&
           (digits.find(source_[at]) != std::string_view::npos ||
            (source_[at] == '_' && at + 1 < source_.size() && digits.find(source_[at + 1]) != std::string_view::npos)))
      ++at;
    return at;
  }

  Status read_number() {
    constexpr std::string_view kDecimal = "0123456789";
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char base = static_cast<char>(source_[at_ + 1] | 0x20);
      const std::string_view digits = base == 'b' ? "01" : base == 'o' ? "01234567" : base == 'x' ? "0123456789abcdefABCDEF" : "";
      if (const size_t end = digits.empty() ? 0 : digits_end(at_ + 2, digits); end > at_ + 2) {
        take(Token::Kind::kInteger, end);
        return {};
      }
    }
    size_t end = digits_end(at_, kDecimal);
    // In a.0.5 the digits are two subscripts.
    const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';
    Token::Kind kind = Token::Kind::kInteger;
    if (!behind_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_ascii_digit(source_[end + 1])) {
        kind = Token::Kind::kFloat;
        end = digits_end(end + 1, kDecimal);
      }
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_ascii_digit(source_[exponent])) {
          kind = Token::Kind::kFloat;
          end = digits_end(exponent, kDecimal);
        }
      }
    }
    if (kind == Token::Kind::kInteger && end - at_ > 1 && source_[at_] == '0' &&
        std::any_of(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(end),
                    [](char c) { return c >= '1' && c <= '9'; }))
      return wrong("a whole number begins with 0");
    take(kind, end);
    std::string& text = tokens_.back().text;
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    return {};
  }

  Status read_string() {
    const char quote = source_[at_];
    std::string text;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\') {
        text += source_[i++];
        continue;
      }
      if (++i == source_.size()) break;
      BATON_TRY(read_escape(i, text));
    }
    if (i >= source_.size()) return wrong(fmt::format("a string that begins with {} has no end", quote));
    add(Token::Kind::kString, std::move(text));
    jump_to(at_, i + 1);
    return {};
  }

  // `i` is behind the backslash, and behind the escape afterwards.
  Status read_escape(size_t& i, std::string& out) const {
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[i];
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      out += kTo[at];
      ++i;
      return {};
    }
    if (c == '\n') {
      ++i;
      return {};
    }
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const uint32_t base = digits != 0 ? 16 : 8;
    if (digits != 0) {
      ++i;
    } else if (c >= '0' && c <= '7') {
      digits = 1;
      while (digits < 3 && i + digits < source_.size() && source_[i + digits] >= '0' && source_[i + digits] <= '7') ++digits;
    } else if (c == 'N') {
      return wrong("named characters (\\N) in strings are not supported; write \\u and four digits");
    } else {
      out += '\\';  // stays, and so does what follows
      return {};
    }
    uint32_t code = 0;
    for (size_t n = 0; n < digits; ++n, ++i) {
      const char d = i < source_.size() ? source_[i] : ' ';
      const uint32_t value = is_ascii_digit(d)                        ? static_cast<uint32_t>(d - '0')
                             : (d | 0x20) >= 'a' && (d | 0x20) <= 'f' ? static_cast<uint32_t>((d | 0x20) - 'a' + 10)
                                                                      : 99;
      if (value >= base) return wrong("an escape in a string has too few digits");
      code = code * base + value;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return wrong("an escape in a string is no character");
    append_utf8(out, code);
    return {};
  }

  void take(Token::Kind kind, size_t end) {
    add(kind, source_.substr(at_, end - at_));
    jump_to(at_, end);
  }
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  void add_data(std::string text) {
    if (!text.empty()) add(Token::Kind::kData, std::move(text));
  }
  void count_lines(std::string_view text) {
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    at_ += text.size();
  }
  // Everything from `from` to `to` has been read.
  void jump_to(size_t from, size_t to) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(from), source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
    line_starting_ = to > 0 && source_[to - 1] == '\n';
  }
  Error wrong(std::string_view what) const { return {Error::Kind::kInvalid, fmt::format("line {}: {}", line_, what)}; }

  const std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag ended with a line end
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (!valid_utf8(source)) return Error{Error::Kind::kInvalid, "the template is not valid UTF-8"};
  return Lexer(with_plain_line_ends(source)).run();
}

}  // namespace baton::text::jinja
