#include "api/field_table.h"

#include <boost/json/parse.hpp>
#include <initializer_list>

namespace baton::api {
namespace {

namespace json = boost::json;

const Field* find(FieldGroups groups, std::string_view name) {
  for (const auto group : groups)
    for (const Field& field : group)
      if (field.name == name) return &field;
  return nullptr;
}

bool same(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

void read_field(FieldReader in, const Field* field, Request& out) {
  if (in.failed()) return;
  if (field == nullptr) return in.unknown();
  if (in.value().is_null()) return;
  if (field->use == Use::kRefused && (field->harmless.empty() || !same(in.value(), json::parse(field->harmless))))
    return in.unsupported(field->what);
  if (field->use != Use::kTaken) return;
  in.reading().taken.push_back(in.path());
  field->read(in, out);
}

// Two spellings of one thing, at most, may say the same. `each` calls its argument with every name and value.
void check_spellings(FieldGroups groups, Reading& reading, const std::string& path, const auto& each) {
  each([&](std::string_view name, const json::value& value) {
    const Field* field = find(groups, name);
    if (field == nullptr || field->same_as.empty() || value.is_null()) return;
    each([&](std::string_view other, const json::value& its) {
      const Field* beside = find(groups, other);
      const bool same_thing = other == field->same_as || (beside != nullptr && beside->same_as == field->same_as);
      if (reading.error || other == name || !same_thing || its.is_null() || same(value, its)) return;
      reading.error = ApiError::field(path.empty() ? std::string(name) : fmt::format("{}.{}", path, name),
                                      fmt::format("says otherwise than `{}`, which means the same; give one of them", other));
    });
  });
}

void check_required(FieldGroups groups, Reading& reading, const std::string& path, const auto& has) {
  for (const auto group : groups)
    for (const Field& field : group)
      if (field.required && !reading.error && !has(field.name)) {
        reading.error = ApiError::field(path.empty() ? std::string(field.name) : fmt::format("{}.{}", path, field.name), "is missing");
        reading.error->code = "missing_required_parameter";
      }
}

// How the client wrote the first of `names` that it gave; the first of them if it gave none.
std::string spelling(const Reading& reading, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    for (const std::string& path : reading.taken)
      if (path == name || path == fmt::format("sampling_params.{}", name)) return path;
  return std::string(*names.begin());
}

}  // namespace

std::string type_text(const Field& field) {
  if (field.range.least >= field.range.most) return std::string(field.type);
  return fmt::format("{}, {}{} to {}", field.type, field.range.open ? "above " : "", field.range.least, field.range.most);
}

void read_fields(const Body& body, FieldGroups groups, Reading& reading, Request& out) {
  for (const Body::Member& m : body.members) {
    const Field* field = find(groups, m.name);
    read_field({reading, *m.value, std::string(m.name), m.raw, field != nullptr ? field->range : Range{}}, field, out);
  }
  check_spellings(groups, reading, "", [&](const auto& look) {
    for (const Body::Member& m : body.members) look(m.name, *m.value);
  });
  check_required(groups, reading, "", [&](std::string_view name) {
    for (const Body::Member& m : body.members)
      if (m.name == name) return !m.value->is_null();
    return false;
  });
}

void read_fields(FieldReader& object, FieldGroups groups, Request& out) {
  const json::object* members = object.object();
  if (members == nullptr) return;
  if (members->size() > object.limits().fields)
    return object.wrong(fmt::format("has {} fields; {} are the most", members->size(), object.limits().fields));
  for (const auto& m : *members) {
    const Field* field = find(groups, m.key());
    const FieldReader in = object.member(m.key(), m.value());
    read_field({object.reading(), m.value(), in.path(), {}, field != nullptr ? field->range : Range{}}, field, out);
  }
  check_spellings(groups, object.reading(), object.path(), [&](const auto& look) {
    for (const auto& m : *members) look(m.key(), m.value());
  });
  check_required(groups, object.reading(), object.path(), [&](std::string_view name) {
    const json::value* v = members->if_contains(name);
    return v != nullptr && !v->is_null();
  });
}

void check_whole(Reading& reading, const Request& r) {
  if (reading.error) return;
  const Sampling& s = r.sampling;
  const auto wrong = [&](std::string field, std::string_view what) { reading.error = ApiError::field(std::move(field), what); };
  if (s.max_tokens && s.min_tokens > *s.max_tokens) {
    const std::string most = spelling(reading, {"max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens"});
    return wrong(spelling(reading, {"min_tokens", "min_new_tokens"}),
                 fmt::format("is {}, which is more than {}, {}", s.min_tokens, most, *s.max_tokens));
  }
  if (!r.stream.on && (r.stream.include_usage || r.stream.continuous_usage))
    return wrong("stream_options", "is only for streams: set `stream` to true");
}

}  // namespace baton::api
