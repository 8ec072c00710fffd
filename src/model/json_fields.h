// Reads typed fields of a JSON object and collects what is wrong with them, each with its key and what is accepted.
#pragma once

#include <boost/json/object.hpp>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/problems.h"

namespace baton::model {

class JsonFields {
 public:
  // `path` precedes keys in messages, for example "text_config."; `object` must outlive this.
  JsonFields(const boost::json::object& object, std::string path, Problems& problems)
      : object_(object), path_(std::move(path)), problems_(problems) {}

  // The value, or null if the key is absent or null.
  const boost::json::value* find(std::string_view key) const {
    const boost::json::value* v = object_.if_contains(key);
    return v == nullptr || v->is_null() ? nullptr : v;
  }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // A whole number in [low, high]; without a default, the key is required. Returns `low` where there is a problem.
  int64_t integer(std::string_view key, int64_t low, int64_t high, std::optional<int64_t> otherwise = {}) const {
    const boost::json::value* v = find(key);
    if (v == nullptr && otherwise) return *otherwise;
    const std::string wanted = low == high ? fmt::format("only {}", low) : fmt::format("a whole number from {} to {}", low, high);
    if (v == nullptr) {
      missing(key, wanted);
      return low;
    }
    if (const int64_t* i = v->if_int64(); i != nullptr && *i >= low && *i <= high) return *i;
    wrong(key, *v, wanted);
    return low;
  }

  // A finite number in [low, high]. Returns `low` where there is a problem.
  double number(std::string_view key, double low, double high, std::optional<double> otherwise = {}) const {
    const boost::json::value* v = find(key);
    if (v == nullptr && otherwise) return *otherwise;
    const std::string wanted = fmt::format("a number from {} to {}", low, high);
    if (v == nullptr) {
      missing(key, wanted);
      return low;
    }
    const double x = v->is_double()   ? v->get_double()
                     : v->is_int64()  ? static_cast<double>(v->get_int64())
                     : v->is_uint64() ? static_cast<double>(v->get_uint64())
                                      : std::numeric_limits<double>::quiet_NaN();
    if (x >= low && x <= high) return x;  // false for NaN
    wrong(key, *v, wanted);
    return low;
  }

  bool flag(std::string_view key, bool otherwise) const {
    const boost::json::value* v = find(key);
    if (v == nullptr) return otherwise;
    if (v->is_bool()) return v->get_bool();
    wrong(key, *v, "true or false");
    return otherwise;
  }

  // Settings with a single supported value; an absent key means that value.
  void require_flag(std::string_view key, bool only) const {
    const boost::json::value* v = find(key);
    if (v != nullptr && !(v->is_bool() && v->get_bool() == only)) wrong(key, *v, fmt::format("only {}", only));
  }
  void require_text(std::string_view key, std::initializer_list<std::string_view> accepted) const {
    const boost::json::value* v = find(key);
    if (v == nullptr) return;
    if (v->is_string())
      for (const std::string_view a : accepted)
        if (std::string_view(v->get_string()) == a) return;
    wrong(key, *v, fmt::format("only {}", fmt::join(accepted, " or ")));
  }
  void require_integer(std::string_view key, int64_t only) const { integer(key, only, only, only); }

  void missing(std::string_view key, std::string_view wanted) const {
    problems_.add("missing keys", fmt::format("{}{}: {} is accepted", path_, key, wanted));
  }
  void wrong(std::string_view key, const boost::json::value& value, std::string_view wanted) const {
    problems_.add("unsupported values", fmt::format("{}{} is {}: {} is accepted", path_, key, shortened(value), wanted));
  }
  void inconsistent(std::string text) const { problems_.add("impossible sizes", path_ + std::move(text)); }

  const boost::json::object& object() const { return object_; }
  Problems& problems() const { return problems_; }
  const std::string& path() const { return path_; }

  static std::string shortened(const boost::json::value& value);

 private:
  const boost::json::object& object_;
  std::string path_;
  Problems& problems_;
};

// Parses one JSON object with bounded nesting. `where` names the text in messages.
Result<boost::json::object> parse_json_object(std::string_view text, const std::string& where);

}  // namespace baton::model
