// Values from JSON.
#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <cmath>

#include "text/template/limits.h"
#include "text/template/number.h"
#include "text/template/value.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

namespace json = boost::json;

Value text_value(std::string_view bytes, bool untrusted) {
  if (valid_utf8(bytes)) return Text::of(bytes, untrusted);
  std::string repaired;
  append_lossy(repaired, bytes);
  return Text::of(repaired, untrusted);
}

// Boost's parser calls these as it reads.
class Handler {
 public:
  static constexpr std::size_t max_array_size = SIZE_MAX;
  static constexpr std::size_t max_object_size = SIZE_MAX;
  static constexpr std::size_t max_string_size = SIZE_MAX;
  static constexpr std::size_t max_key_size = SIZE_MAX;

  explicit Handler(bool untrusted) : untrusted_(untrusted) {}
  Value take() { return std::move(result_); }
  bool number_too_long() const { return number_too_long_; }
  bool number_too_large() const { return number_too_large_; }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_array_begin(json::error_code&) {
    open_.push_back({Value(std::make_shared<List>()), {}});
    return true;
  }
  bool on_array_end(std::size_t, json::error_code&) { return close(); }
  bool on_object_begin(json::error_code&) {
    open_.push_back({Value(std::make_shared<Dict>()), {}});
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) { return close(); }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) { return keep(part); }
  bool on_string(json::string_view last, std::size_t, json::error_code&) {
    keep(last);
    return add(Text::of(std::exchange(parts_, {}), untrusted_));
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) { return keep(part); }
  bool on_key(json::string_view last, std::size_t, json::error_code&) {
    keep(last);
    open_.back().key = Text::of(std::exchange(parts_, {}), untrusted_);
    return true;
  }
  bool on_number_part(json::string_view part, json::error_code&) { return keep(part); }
  bool on_int64(std::int64_t i, json::string_view, json::error_code&) {
    parts_.clear();
    return add(Value::integer(i, untrusted_));
  }
  bool on_uint64(std::uint64_t i, json::string_view, json::error_code&) {
    parts_.clear();
    return add(Value::integer(BigInt(i), untrusted_));
  }
  // Also whole numbers beyond 64 bits arrive here.
  bool on_double(double d, json::string_view last, json::error_code& error) {
    keep(last);
    const std::string digits = std::exchange(parts_, {});
    if (digits.find_first_of(".eE") != std::string::npos) {
      const double exact = parse_float(digits).value_or(d);
      number_too_large_ = !std::isfinite(exact);
      if (number_too_large_) error = json::error::not_number;
      return !number_too_large_ && add(Value::real(exact, untrusted_));
    }
    const auto i = parse_integer(digits, 10);
    if (!i) {
      number_too_long_ = true;
      error = json::error::not_number;
      return false;
    }
    return add(Value::integer(i->to_big(), untrusted_));
  }
  bool on_bool(bool b, json::error_code&) { return add(Value::boolean(b, untrusted_)); }
  bool on_null(json::error_code&) { return add(Value::none(untrusted_)); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  struct Open {
    Value container;
    Value key;
  };
  bool keep(json::string_view part) {
    parts_.append(part.data(), part.size());
    return true;
  }
  bool close() {
    const Value v = std::move(open_.back().container);
    open_.pop_back();
    return add(v);
  }
  bool add(const Value& v) {
    if (open_.empty()) {
      result_ = v;
      return true;
    }
    Open& o = open_.back();
    if (o.container.is(Type::kDict)) {
      o.container.as_dict().set(o.key, v);
    } else {
      o.container.as_list().hold(v);
      o.container.as_list().items.push_back(v);
    }
    return true;
  }

  const bool untrusted_;
  Value result_;
  std::vector<Open> open_;
  std::string parts_;
  bool number_too_long_ = false;
  bool number_too_large_ = false;  // JSON has no infinity to show it as
};

}  // namespace

Value from_json(const json::value& v, bool untrusted) {
  switch (v.kind()) {
    case json::kind::null: return Value::none(untrusted);
    case json::kind::bool_: return Value::boolean(v.get_bool(), untrusted);
    case json::kind::int64: return Value::integer(v.get_int64(), untrusted);
    case json::kind::uint64: return Value::integer(BigInt(v.get_uint64()), untrusted);
    case json::kind::double_: return Value::real(v.get_double(), untrusted);
    case json::kind::string: return text_value(v.get_string(), untrusted);
    case json::kind::array: {
      auto list = std::make_shared<List>();
      for (const json::value& i : v.get_array()) {
        list->items.push_back(from_json(i, untrusted));
        list->hold(list->items.back());
      }
      return list;
    }
    case json::kind::object: break;
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : v.get_object()) dict->set(text_value(key, untrusted), from_json(value, untrusted));
  return dict;
}

Result<Value> parse_json(std::string_view text, bool untrusted, const std::string& where) {
  json::parse_options options;
  options.max_depth = kMostJsonDepth;
  json::basic_parser<Handler> parser(options, untrusted);
  json::error_code error;
  const size_t read = parser.write_some(false, text.data(), text.size(), error);
  if (!error && read < text.size()) error = json::error::extra_data;
  if (error) {
    const std::string why = parser.handler().number_too_long()    ? "a number has too many digits"
                            : parser.handler().number_too_large() ? "a number is larger than any float"
                                                                  : error.message();
    return Error{Error::Kind::kInvalid, fmt::format("{}: not valid JSON at byte {}: {}", where, read, why)};
  }
  return parser.handler().take();
}

}  // namespace baton::text::jinja
