// Members of JSON objects that others wrote: what is missing, or of another type, reads as nothing.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton::app {

inline const boost::json::value* at(const boost::json::object* object, std::string_view key) {
  return object != nullptr ? object->if_contains(boost::json::string_view(key.data(), key.size())) : nullptr;
}
inline const boost::json::object* object_at(const boost::json::object* object, std::string_view key) {
  const boost::json::value* v = at(object, key);
  return v != nullptr ? v->if_object() : nullptr;
}
// The first of a list, if it is an object.
inline const boost::json::object* first_at(const boost::json::object* object, std::string_view key) {
  const boost::json::value* v = at(object, key);
  return v != nullptr && v->is_array() && !v->get_array().empty() ? v->get_array().front().if_object() : nullptr;
}
inline std::string text_at(const boost::json::object* object, std::string_view key) {
  const boost::json::value* v = at(object, key);
  return v != nullptr && v->is_string() ? std::string(v->get_string()) : std::string();
}
inline int64_t number_at(const boost::json::object* object, std::string_view key) {
  const boost::json::value* v = at(object, key);
  return v != nullptr && v->is_int64() ? v->get_int64() : 0;
}

}  // namespace baton::app
