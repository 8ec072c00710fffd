#include "model/json_fields.h"

#include <boost/json/parser.hpp>
#include <boost/json/serialize.hpp>

namespace baton::model {

std::string JsonFields::shortened(const boost::json::value& value) {
  constexpr size_t kShown = 60;
  if (value.is_object()) return "an object";
  if (value.is_array() && value.get_array().size() > kShown) return fmt::format("a list of {}", value.get_array().size());
  std::string text = boost::json::serialize(value);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

Result<boost::json::object> parse_json_object(std::string_view text, const std::string& where) {
  boost::json::parse_options options;
  options.max_depth = 32;
  boost::json::parser parser({}, options);
  boost::system::error_code ec;
  const size_t parsed = parser.write_some(text.data(), text.size(), ec);
  const auto invalid = [&where](const std::string& what) { return Error{Error::Kind::kInvalid, fmt::format("{}: {}", where, what)}; };
  if (ec) return invalid(fmt::format("not valid JSON at byte {}: {}", parsed, ec.message()));
  if (parsed != text.size()) return invalid(fmt::format("text follows the JSON value at byte {}", parsed));
  boost::json::value value = parser.release();
  if (!value.is_object()) return invalid("a JSON object is expected");
  return std::move(value.get_object());
}

}  // namespace baton::model
