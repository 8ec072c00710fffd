#include "api/field_reader.h"

#include <cmath>
#include <limits>

#include "text/utf8.h"

namespace baton::api {

namespace json = boost::json;

std::string shown(const json::value& value) {
  constexpr size_t kMost = 40;
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return value.get_bool() ? "true" : "false";
    case json::kind::int64: return fmt::format("{}", value.get_int64());
    case json::kind::uint64: return fmt::format("{}", value.get_uint64());
    case json::kind::double_: return fmt::format("{}", value.get_double());
    case json::kind::array: return value.get_array().empty() ? "an empty list" : "a list";
    case json::kind::object: return "an object";
    case json::kind::string: break;
  }
  const std::string_view text = value.get_string();
  if (text.size() <= kMost) return fmt::format("'{}'", text);
  std::string_view begin = text.substr(0, kMost);
  begin.remove_suffix(text::incomplete_tail(begin));
  return fmt::format("'{}...'", begin);
}

void FieldReader::fail(ApiError error) {
  if (!reading_.error) reading_.error = std::move(error);
}

void FieldReader::wrong(std::string_view what) { fail(ApiError::field(path_, what)); }
void FieldReader::unsupported(std::string_view what) { fail(ApiError::unsupported(path_, what)); }

void FieldReader::unknown() {
  constexpr size_t kMostListed = 64, kMostListedBytes = 128;
  if (limits().strict) {
    ApiError e = ApiError::field(path_, "is no field that this endpoint knows, and unknown fields are refused here");
    e.code = "unknown_parameter";
    return fail(std::move(e));
  }
  if (reading_.ignored_fields.size() == kMostListed) reading_.ignored_fields.emplace_back("...");
  if (reading_.ignored_fields.size() >= kMostListed) return;
  // The list becomes a header of the answer.
  std::string listed = path_.substr(0, kMostListedBytes);
  for (char& c : listed)
    if (c <= ' ' || c >= 0x7F || c == ',') c = '?';
  reading_.ignored_fields.push_back(std::move(listed));
}

std::optional<bool> FieldReader::flag() {
  if (value_.is_bool()) return value_.get_bool();
  wrong(fmt::format("is {}; it must be true or false", shown(value_)));
  return {};
}

std::optional<double> FieldReader::number(Range range) {
  double v = std::numeric_limits<double>::quiet_NaN();
  if (value_.is_double()) v = value_.get_double();
  if (value_.is_int64()) v = static_cast<double>(value_.get_int64());
  if (value_.is_uint64()) v = static_cast<double>(value_.get_uint64());
  // What it is stored in has 32 bits: what is nothing there does not lie above nothing.
  const bool at_least = static_cast<float>(v) == static_cast<float>(range.least);
  if (std::isfinite(v) && v >= range.least && v <= range.most && !(range.open && at_least)) return v;
  wrong(fmt::format("is {}; it must be a number {} {} {} {}", shown(value_), range.open ? "above" : "from", range.least,
                    range.open ? "and at most" : "to", range.most));
  return {};
}

std::optional<int64_t> FieldReader::whole(int64_t least, int64_t most) {
  std::optional<int64_t> v;
  if (value_.is_int64()) v = value_.get_int64();
  // 5.0 is a whole number, too: some languages write all numbers so.
  constexpr double kExact = 0x1p53;
  if (value_.is_double() && std::abs(value_.get_double()) <= kExact && std::trunc(value_.get_double()) == value_.get_double())
    v = static_cast<int64_t>(value_.get_double());
  if (v && *v >= least && *v <= most) return v;
  wrong(fmt::format("is {}; it must be a whole number from {} to {}", shown(value_), least, most));
  return {};
}

std::optional<std::string_view> FieldReader::text(size_t most_bytes) {
  if (!value_.is_string()) {
    wrong(fmt::format("is {}; it must be a string", shown(value_)));
    return {};
  }
  const std::string_view v = value_.get_string();
  if (v.size() <= most_bytes) return v;
  wrong(fmt::format("has {} bytes; {} are the most", v.size(), most_bytes));
  return {};
}

const json::object* FieldReader::object() {
  if (value_.is_object()) return &value_.get_object();
  wrong(fmt::format("is {}; it must be an object", shown(value_)));
  return nullptr;
}

const json::array* FieldReader::array(size_t most_items) {
  if (!value_.is_array()) {
    wrong(fmt::format("is {}; it must be a list", shown(value_)));
    return nullptr;
  }
  const json::array& v = value_.get_array();
  if (v.size() <= most_items) return &v;
  wrong(fmt::format("has {} elements; {} are the most", v.size(), most_items));
  return nullptr;
}

std::optional<int32_t> FieldReader::token() {
  const int32_t most = limits().vocabulary > 0 ? limits().vocabulary - 1 : std::numeric_limits<int32_t>::max();
  const auto id = whole(0, most);
  return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
}

FieldReader FieldReader::member(std::string_view name, const json::value& value) const {
  return {reading_, value, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name)};
}

FieldReader FieldReader::item(size_t index, const json::value& value) const {
  return {reading_, value, fmt::format("{}[{}]", path_, index)};
}

}  // namespace baton::api
