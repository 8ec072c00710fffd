// What a request is refused with, or ends with: one error for all APIs, and how each of them writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::api {

enum class Dialect : uint8_t {
  kOpenAi,     // {"error": {"message", "type", "param", "code"}}
  kAnthropic,  // {"type": "error", "error": {"type", "message"}, "request_id"}
  kNative,     // as OpenAI's: what clients of /generate read, too
};

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string code{};   // for programs; empty: null
  std::string param{};  // the field, such as "messages[2].role"; empty: none is to blame
  std::string message{};

  // `what` completes the sentence that begins with the field: "must be from 0 to 2".
  static ApiError field(std::string param, std::string_view what);
  static ApiError invalid(std::string message, std::string code = "");
  static ApiError unsupported(std::string param, std::string_view what);
  static ApiError unauthorized(std::string message);               // 401
  static ApiError model_not_found(std::string_view model);         // 404
  static ApiError not_found(std::string message);                  // 404
  static ApiError method_not_allowed(std::string message);         // 405
  static ApiError timeout(std::string message);                    // 408
  static ApiError too_large(std::string message);                  // 413
  static ApiError slow_down(std::string message);                  // 429: the client's share is used up; later
  static ApiError overloaded(std::string message);                 // 503: the server is full, or ends; later, or elsewhere
  static ApiError internal(std::string message);                   // 500
  static ApiError of_http(int status, std::string message);        // what is no whole request, or one that HTTP itself refuses
  static ApiError of(const Error& error, std::string param = {});  // of the rooms below: what the client can change is 400
  bool operator==(const ApiError&) const = default;
};

template <class T>
using ApiResult = Result<T, ApiError>;

// What clients of a path read, also where it is not asked for in the right way.
Dialect dialect_of(std::string_view path);

// The body of an answer that is an error. `request_id` is shown where the dialect has a place for it.
std::string error_body(Dialect dialect, const ApiError& error, std::string_view request_id = {});
// The same as the last event of a stream.
void append_error_event(std::string& out, Dialect dialect, const ApiError& error, std::string_view request_id = {});
// What the Anthropic API calls an error of this status.
std::string_view anthropic_type(int status);

}  // namespace baton::api
