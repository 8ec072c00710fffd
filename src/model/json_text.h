// JSON for people: indented, short lists of scalars on one line.
#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace baton::model {

std::string pretty_json(const boost::json::value& value);

}  // namespace baton::model
