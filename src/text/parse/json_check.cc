#include "text/parse/json_check.h"

#include <fmt/format.h>

namespace baton::text {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// A pushdown automaton over JSON text; no recursion, so that depth costs a byte and not a stack frame.
class JsonMachine {
 public:
  bool add(char c) {
    switch (state_) {
      case State::kString: return add_to_string(c);
      case State::kEscape: return add_escape(c);
      case State::kHex: return add_hex(c);
      case State::kLiteral: return add_to_literal(c);
      case State::kNumber:
        if (add_to_number(c)) return true;
        if (!number_whole()) return false;
        end_value();
        return add(c);
      case State::kValue: return is_space(c) || begin_value(c);
      case State::kValueOrEnd: return is_space(c) || (c == ']' ? close() : begin_value(c));
      case State::kKey: return is_space(c) || (c == '"' && begin_string(true));
      case State::kKeyOrEnd: return is_space(c) || (c == '}' ? close() : c == '"' && begin_string(true));
      case State::kColon: return is_space(c) || (c == ':' && (state_ = State::kValue, true));
      case State::kComma: return is_space(c) || add_after_value(c);
      case State::kWhole: return is_space(c);
    }
    return false;
  }

  bool whole() const { return state_ == State::kWhole || (state_ == State::kNumber && open_.empty() && number_whole()); }
  JsonKind kind() const { return open_.empty() && state_ == State::kNumber ? number_kind() : kind_; }

  // What is missing after the text added so far. `drop_comma` is set where a comma at the end has to go. Nothing if a \u escape was cut.
  std::optional<std::string> missing(bool& drop_comma) const {
    if (state_ == State::kHex) return std::nullopt;
    std::string rest;
    bool value_follows = false;  // a key without its value
    switch (state_) {
      case State::kEscape: rest = key_ ? "\\\":null" : "\\\""; break;
      case State::kString: rest = key_ ? "\":null" : "\""; break;
      case State::kLiteral: rest = literal_.substr(literal_at_); break;
      case State::kNumber: rest = number_whole() ? "" : "0"; break;
      case State::kColon: rest = ":null"; break;
      case State::kKey: drop_comma = true; break;
      case State::kValue:
        value_follows = !open_.empty() && open_.back() == '}';
        drop_comma = !value_follows;
        break;
      default: break;
    }
    if (value_follows) rest = "null";
    for (size_t i = open_.size(); i-- > 0;) rest += open_[i];
    return rest;
  }

 private:
  enum class State { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kComma, kString, kEscape, kHex, kLiteral, kNumber, kWhole };
  enum class Number { kMinus, kZero, kDigits, kPoint, kFraction, kExponent, kExponentSign, kExponentDigits };

  bool begin_value(char c) {
    if (open_.empty()) kind_ = kind_of(c);
    if (c == '"') return begin_string(false);
    if (c == '{' || c == '[') {
      if (open_.size() >= kMostJsonDepth) return false;
      open_ += c == '{' ? '}' : ']';
      state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
      return true;
    }
    for (const std::string_view literal : {"true", "false", "null"})
      if (c == literal[0]) {
        literal_ = literal;
        literal_at_ = 1;
        state_ = State::kLiteral;
        return true;
      }
    if (c != '-' && !is_digit(c)) return false;
    number_ = c == '-' ? Number::kMinus : c == '0' ? Number::kZero : Number::kDigits;
    state_ = State::kNumber;
    return true;
  }

  static JsonKind kind_of(char c) {
    return c == '"'   ? JsonKind::kString
           : c == '{' ? JsonKind::kObject
           : c == '[' ? JsonKind::kArray
           : c == 'n' ? JsonKind::kNull
                      : JsonKind::kBoolean;
  }

  bool begin_string(bool key) {
    key_ = key;
    state_ = State::kString;
    return true;
  }

  bool add_to_string(char c) {
    if (c == '\\') state_ = State::kEscape;
    if (c == '"') {
      if (key_)
        state_ = State::kColon;
      else
        end_value();
    }
    return static_cast<uint8_t>(c) >= 0x20;
  }

  bool add_escape(char c) {
    if (c == 'u') {
      hex_left_ = 4;
      state_ = State::kHex;
      return true;
    }
    state_ = State::kString;
    return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
  }

  bool add_hex(char c) {
    if (!is_hex(c)) return false;
    if (--hex_left_ == 0) state_ = State::kString;
    return true;
  }

  bool add_to_literal(char c) {
    if (c != literal_[literal_at_++]) return false;
    if (literal_at_ == literal_.size()) end_value();
    return true;
  }

  bool add_to_number(char c) {
    const bool digit = is_digit(c), exponent = c == 'e' || c == 'E';
    const auto go = [this](bool may, Number next) {
      if (may) number_ = next;
      return may;
    };
    switch (number_) {
      case Number::kMinus: return go(digit, c == '0' ? Number::kZero : Number::kDigits);
      case Number::kDigits:
        if (digit) return true;
        [[fallthrough]];
      case Number::kZero: return go(c == '.', Number::kPoint) || go(exponent, Number::kExponent);
      case Number::kPoint: return go(digit, Number::kFraction);
      case Number::kFraction: return digit || go(exponent, Number::kExponent);
      case Number::kExponent: return go(digit, Number::kExponentDigits) || go(c == '+' || c == '-', Number::kExponentSign);
      case Number::kExponentSign: return go(digit, Number::kExponentDigits);
      case Number::kExponentDigits: return digit;
    }
    return false;
  }

  bool number_whole() const {
    return number_ == Number::kZero || number_ == Number::kDigits || number_ == Number::kFraction || number_ == Number::kExponentDigits;
  }
  JsonKind number_kind() const { return number_ == Number::kZero || number_ == Number::kDigits ? JsonKind::kInteger : JsonKind::kNumber; }

  bool add_after_value(char c) {
    if (c != ',') return c == open_.back() && close();
    state_ = open_.back() == '}' ? State::kKey : State::kValue;
    return true;
  }

  bool close() {
    open_.pop_back();
    end_value();
    return true;
  }

  void end_value() {
    if (open_.empty() && state_ == State::kNumber) kind_ = number_kind();
    state_ = open_.empty() ? State::kWhole : State::kComma;
  }

  State state_ = State::kValue;
  Number number_ = Number::kMinus;
  JsonKind kind_ = JsonKind::kNull;
  bool key_ = false;
  int hex_left_ = 0;
  std::string_view literal_;
  size_t literal_at_ = 0;
  std::string open_;  // the brackets that will close what is open
};

}  // namespace

std::optional<JsonKind> json_kind(std::string_view text) {
  if (text.empty() || is_space(text.front()) || is_space(text.back())) return std::nullopt;
  JsonMachine machine;
  for (const char c : text)
    if (!machine.add(c)) return std::nullopt;
  if (!machine.whole()) return std::nullopt;
  return machine.kind();
}

std::optional<std::string> completed_json(std::string_view text) {
  if (text.empty() || (text.front() != '{' && text.front() != '[')) return std::nullopt;
  JsonMachine machine;
  for (const char c : text)
    if (!machine.add(c)) return std::nullopt;
  bool drop_comma = false;
  const auto rest = machine.missing(drop_comma);
  if (!rest) return std::nullopt;
  if (drop_comma) text = text.substr(0, text.rfind(','));
  return std::string(text) + *rest;
}

std::string with_whole_surrogates(std::string_view json) {
  const auto surrogate = [&](size_t at) -> uint32_t {  // the code of an escape there, 0 if it is none of a surrogate
    if (json.size() < at + 6 || json[at] != '\\' || json[at + 1] != 'u' || (json[at + 2] | 0x20) != 'd') return 0;
    uint32_t code = 0;
    for (size_t i = at + 2; i < at + 6; ++i)
      code = code << 4 | static_cast<uint32_t>(is_digit(json[i]) ? json[i] - '0' : (json[i] | 0x20) - 'a' + 10);
    return code >= 0xD800 ? code : 0;
  };
  std::string result;
  size_t begin = 0;
  for (size_t at = json.find('\\'); at != std::string_view::npos && at + 1 < json.size(); at = json.find('\\', at)) {
    const uint32_t code = surrogate(at);
    if (code == 0) {
      at += 2;
    } else if (code < 0xDC00 && surrogate(at + 6) >= 0xDC00) {
      at += 12;
    } else {
      result.append(json, begin, at - begin);
      result += "\\ufffd";
      begin = at += 6;
    }
  }
  return result.append(json, begin);
}

void append_json_escaped(std::string& out, std::string_view text) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<uint8_t>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, begin, i - begin);
    begin = i + 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c)); break;
    }
  }
  out.append(text, begin, text.size() - begin);
}

}  // namespace baton::text
