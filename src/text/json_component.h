// One object of tokenizer.json with its place in the file, so that every complaint names both.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::text {

constexpr int32_t kMostTokenIds = 1 << 21;  // memory is taken up to the highest id

class JsonComponent {
 public:
  // `value` must be an object and outlive this; `path` is its place, such as "pre_tokenizer.pretokenizers[0]".
  static Result<JsonComponent> of(const boost::json::value& value, std::string path);

  const std::string& path() const { return path_; }
  std::string path_to(std::string_view key) const;

  // The value, or null where the key is absent or null.
  const boost::json::value* find(std::string_view key) const;

  // The field "type".
  Result<std::string> type() const { return text("type"); }
  Result<std::string> text(std::string_view key) const;
  Result<bool> flag(std::string_view key, bool otherwise) const;
  Result<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  Result<const boost::json::array*> array(std::string_view key) const;
  Result<JsonComponent> component(std::string_view key) const;
  Result<int32_t> token_id(std::string_view key) const;

  // A component of a kind that this program does not know.
  Error unknown_type(std::string_view kind, std::string_view type, std::string_view known) const;
  Error wrong(std::string_view key, std::string_view wanted) const;

 private:
  JsonComponent(const boost::json::object& object, std::string path) : object_(&object), path_(std::move(path)) {}
  const boost::json::object* object_;
  std::string path_;
};

// Components inside a "Sequence" and other lists: each with its path.
Result<JsonComponent> list_item(const boost::json::array& list, size_t i, const std::string& path);

}  // namespace baton::text
