// Reads one value of a request, checks it, and says what is wrong with it by the name of its field.
#pragma once

#include <fmt/format.h>

#include <boost/json/value.hpp>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "api/error.h"
#include "api/limits.h"

namespace baton::api {

struct Range {
  double least = 0, most = 0;
  bool open = false;  // `least` itself is out
};

// What all readers of a request share.
struct Reading {
  const ParseLimits& limits;
  std::vector<std::string>& ignored_fields;
  std::optional<ApiError> error{};   // the first thing that is wrong
  std::vector<std::string> taken{};  // paths of the fields that were, so that what is wrong with several is said in the client's words
};

// "3", "a list", "null": for messages.
std::string shown(const boost::json::value& value);

// After the first error of a request, readers go on without harm: what they return does not count.
class FieldReader {
 public:
  // `raw` is the text of the value where it is known.
  FieldReader(Reading& reading, const boost::json::value& value, std::string path, std::string_view raw = {}, Range range = {})
      : reading_(reading), value_(value), path_(std::move(path)), raw_(raw), range_(range) {}

  const boost::json::value& value() const { return value_; }
  const std::string& path() const { return path_; }
  std::string_view raw() const { return raw_; }
  const ParseLimits& limits() const { return reading_.limits; }
  Reading& reading() { return reading_; }
  bool failed() const { return reading_.error.has_value(); }

  void wrong(std::string_view what);        // completes the sentence that begins with the field
  void unsupported(std::string_view what);  // the same for what is right, but not there
  void unknown();                           // ignored, or refused if the server is strict

  // Nothing, and an error, if the value is of another type or out of bounds.
  std::optional<bool> flag();
  std::optional<double> number(Range range);
  std::optional<int64_t> whole(int64_t least, int64_t most);
  std::optional<std::string_view> text(size_t most_bytes);
  const boost::json::object* object();
  const boost::json::array* array(size_t most_items);

  // The value by the type of what it is stored in, in the range of the field's table.
  template <class T>
  void into(T& target) {
    if constexpr (requires { typename T::value_type; } && !std::same_as<T, std::string>) {
      typename T::value_type value{};
      into(value);
      if (!failed()) target = value;
    } else if constexpr (std::same_as<T, bool>) {
      if (const auto v = flag()) target = *v;
    } else if constexpr (std::is_floating_point_v<T>) {
      if (const auto v = number(range_)) target = static_cast<T>(*v);
    } else if constexpr (std::is_integral_v<T>) {
      if (const auto v = whole(static_cast<int64_t>(range_.least), static_cast<int64_t>(range_.most))) target = static_cast<T>(*v);
    } else {
      static_assert(std::same_as<T, std::string>);
      if (const auto v = text(kMostNameBytes)) target = std::string(*v);
    }
  }
  // A token id.
  std::optional<int32_t> token();

  FieldReader member(std::string_view name, const boost::json::value& value) const;
  FieldReader item(size_t index, const boost::json::value& value) const;

  static constexpr size_t kMostNameBytes = 4096;  // of strings that are no prompt

 private:
  void fail(ApiError error);

  Reading& reading_;
  const boost::json::value& value_;
  std::string path_;
  std::string_view raw_;
  Range range_;
};

}  // namespace baton::api
