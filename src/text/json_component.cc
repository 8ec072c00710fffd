#include "text/json_component.h"

#include <fmt/format.h>

namespace baton::text {
namespace json = boost::json;

Result<JsonComponent> JsonComponent::of(const json::value& value, std::string path) {
  if (!value.is_object()) return Error{Error::Kind::kInvalid, fmt::format("{}: an object is expected", path)};
  return JsonComponent(value.get_object(), std::move(path));
}

std::string JsonComponent::path_to(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

Error JsonComponent::wrong(std::string_view key, std::string_view wanted) const {
  return {Error::Kind::kInvalid, fmt::format("{}: {} is expected", path_to(key), wanted)};
}

Error JsonComponent::unknown_type(std::string_view kind, std::string_view type, std::string_view known) const {
  return {Error::Kind::kUnsupported, fmt::format("{}: the {} '{}' is not supported; supported are {}", path_, kind, type, known)};
}

const json::value* JsonComponent::find(std::string_view key) const {
  const json::value* v = object_->if_contains(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

Result<std::string> JsonComponent::text(std::string_view key) const {
  const json::value* v = find(key);
  if (v == nullptr || !v->is_string()) return wrong(key, "a string");
  return std::string(v->get_string());
}

Result<bool> JsonComponent::flag(std::string_view key, bool otherwise) const {
  const json::value* v = find(key);
  if (v == nullptr) return otherwise;
  if (!v->is_bool()) return wrong(key, "true or false");
  return v->get_bool();
}

Result<int64_t> JsonComponent::integer(std::string_view key, int64_t low, int64_t high) const {
  const json::value* v = find(key);
  const int64_t* i = v == nullptr ? nullptr : v->if_int64();
  if (i == nullptr || *i < low || *i > high) return wrong(key, fmt::format("a whole number from {} to {}", low, high));
  return *i;
}

Result<int32_t> JsonComponent::token_id(std::string_view key) const {
  BATON_ASSIGN(const int64_t id, integer(key, 0, kMostTokenIds - 1));
  return static_cast<int32_t>(id);
}

Result<const json::array*> JsonComponent::array(std::string_view key) const {
  const json::value* v = find(key);
  if (v == nullptr || !v->is_array()) return wrong(key, "a list");
  return &v->get_array();
}

Result<JsonComponent> JsonComponent::component(std::string_view key) const {
  const json::value* v = find(key);
  if (v == nullptr) return wrong(key, "an object");
  return of(*v, path_to(key));
}

Result<JsonComponent> list_item(const json::array& list, size_t i, const std::string& path) {
  return JsonComponent::of(list[i], fmt::format("{}[{}]", path, i));
}

}  // namespace baton::text
