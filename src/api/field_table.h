// The fields of an endpoint as a table: it parses requests, and it is the reference in docs/api.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/body.h"
#include "api/field_reader.h"
#include "api/request.h"

namespace baton::api {

enum class Use : uint8_t {
  kTaken,
  kNoEffect,  // taken, and nothing comes of it
  kRefused,   // known from other servers; refused, unless the value asks for nothing
};

struct Field {
  std::string_view name;
  std::string_view type;  // for the reference: "number"; with a range, that is added
  std::string_view what;
  Use use = Use::kTaken;
  Range range{};
  bool required = false;
  std::string_view same_as{};   // the field that this is another spelling of
  std::string_view harmless{};  // of kRefused: a JSON value that is taken all the same, as null always is
  void (*read)(FieldReader& in, Request& out) = nullptr;
};

// `what` completes the sentence of the refusal that begins with the field.
constexpr Field refused(std::string_view name, std::string_view what, std::string_view harmless = {}) {
  return {.name = name, .type = {}, .what = what, .use = Use::kRefused, .harmless = harmless};
}
constexpr Field without_effect(std::string_view name, std::string_view what) {
  return {.name = name, .type = {}, .what = what, .use = Use::kNoEffect};
}

// "number, 0 to 1".
std::string type_text(const Field& field);

// A table is made of groups that several endpoints share. A name that is in two groups means the first one.
using FieldGroups = std::span<const std::span<const Field>>;

// Reads all members of a body, or of an object inside one.
void read_fields(const Body& body, FieldGroups groups, Reading& reading, Request& out);
void read_fields(FieldReader& object, FieldGroups groups, Request& out);

// What can only be said of the request as a whole.
void check_whole(Reading& reading, const Request& request);

// Groups that endpoints share.
std::span<const Field> sampling_fields();  // of all endpoints that generate
std::span<const Field> stream_fields();    // stream and stream_options
std::span<const Field> grammar_fields();   // guided_json and its like, in every spelling but response_format
std::span<const Field> openai_fields();    // model, user and their like

}  // namespace baton::api
