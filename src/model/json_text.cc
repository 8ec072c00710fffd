#include "model/json_text.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>

namespace baton::model {
namespace {

bool scalars_only(const boost::json::array& list) {
  for (const boost::json::value& v : list)
    if (v.is_structured()) return false;
  return true;
}

void append(std::string& out, const boost::json::value& value, size_t indent) {
  const std::string line = fmt::format("\n{:{}}", "", indent + 2);
  const std::string last_line = fmt::format("\n{:{}}", "", indent);
  if (value.is_object() && !value.get_object().empty()) {
    char separator = '{';
    for (const auto& [key, v] : value.get_object()) {
      out += separator;
      out += fmt::format("{}{}: ", line, boost::json::serialize(boost::json::string(key)));
      append(out, v, indent + 2);
      separator = ',';
    }
    out += last_line;
    out += '}';
  } else if (value.is_array() && !value.get_array().empty()) {
    const bool flat = scalars_only(value.get_array());
    char separator = '[';
    for (const boost::json::value& v : value.get_array()) {
      out += separator;
      out += !flat ? line : separator == ',' ? " " : "";
      append(out, v, indent + 2);
      separator = ',';
    }
    if (!flat) out += last_line;
    out += ']';
  } else {
    out += boost::json::serialize(value);
  }
}

}  // namespace

std::string pretty_json(const boost::json::value& value) {
  std::string out;
  append(out, value, 0);
  out += '\n';
  return out;
}

}  // namespace baton::model
