#include "api/error.h"

#include <fmt/format.h>

#include "api/json_text.h"

namespace baton::api {

ApiError ApiError::field(std::string param, std::string_view what) {
  std::string message = fmt::format("{}: {}", param, what);
  return {.param = std::move(param), .message = std::move(message)};
}

ApiError ApiError::invalid(std::string message, std::string code) { return {.code = std::move(code), .message = std::move(message)}; }

ApiError ApiError::unsupported(std::string param, std::string_view what) {
  ApiError e = field(std::move(param), what);
  e.code = "unsupported_parameter";
  return e;
}

ApiError ApiError::unauthorized(std::string message) {
  return {.status = 401, .type = "authentication_error", .code = "invalid_api_key", .message = std::move(message)};
}

ApiError ApiError::model_not_found(std::string_view model) {
  return {.status = 404,
          .type = "not_found_error",
          .code = "model_not_found",
          .param = "model",
          .message = fmt::format("The model '{}' is not served here; GET /v1/models lists those that are.", model)};
}

ApiError ApiError::not_found(std::string message) {
  return {.status = 404, .type = "not_found_error", .code = "not_found", .message = std::move(message)};
}

ApiError ApiError::method_not_allowed(std::string message) {
  return {.status = 405, .code = "method_not_allowed", .message = std::move(message)};
}

ApiError ApiError::timeout(std::string message) {
  return {.status = 408, .type = "timeout_error", .code = "timeout", .message = std::move(message)};
}

ApiError ApiError::too_large(std::string message) { return {.status = 413, .code = "request_too_large", .message = std::move(message)}; }

ApiError ApiError::slow_down(std::string message) {
  return {.status = 429, .type = "rate_limit_error", .code = "slow_down", .message = std::move(message)};
}

ApiError ApiError::overloaded(std::string message) {
  return {.status = 503, .type = "service_unavailable_error", .code = "server_is_overloaded", .message = std::move(message)};
}

ApiError ApiError::internal(std::string message) {
  return {.status = 500, .type = "server_error", .code = "internal_error", .message = std::move(message)};
}

ApiError ApiError::of_http(int status, std::string message) {
  if (status == 408) return timeout(std::move(message));
  if (status == 413) return too_large(std::move(message));
  if (status == 503) return overloaded(std::move(message));
  return {.status = status,
          .type = status >= 500 ? "server_error" : "invalid_request_error",
          .code = status == 431   ? "request_header_fields_too_large"
                  : status == 501 ? "not_implemented"
                  : status == 505 ? "http_version_not_supported"
                                  : "bad_http",
          .message = std::move(message)};
}

ApiError ApiError::of(const Error& error, std::string param) {
  if (error.kind == Error::Kind::kIo) return overloaded(error.message);
  ApiError e = param.empty() ? invalid(error.message) : field(std::move(param), error.message);
  if (error.kind == Error::Kind::kUnsupported) e.code = "unsupported";
  return e;
}

Dialect dialect_of(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  path = path.substr(0, path.find('?'));
  if (path == kMessages || (path.starts_with(kMessages) && path[kMessages.size()] == '/')) return Dialect::kAnthropic;
  return path == "/generate" ? Dialect::kNative : Dialect::kOpenAi;
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503:
    case 529: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string error_body(Dialect dialect, const ApiError& error, std::string_view request_id) {
  std::string out;
  if (dialect == Dialect::kAnthropic) {
    out += R"({"type":"error","error":{"type":)";
    append_string(out, anthropic_type(error.status));
    out += R"(,"message":)";
    append_string(out, error.message);
    out += R"(},"request_id":)";
    append_string_or_null(out, request_id);
    return out += '}';
  }
  out += R"({"error":{"message":)";
  append_string(out, error.message);
  out += R"(,"type":)";
  append_string(out, error.type);
  out += R"(,"param":)";
  append_string_or_null(out, error.param);
  out += R"(,"code":)";
  append_string_or_null(out, error.code);
  return out += "}}";
}

void append_error_event(std::string& out, Dialect dialect, const ApiError& error, std::string_view request_id) {
  if (dialect == Dialect::kAnthropic) out += "event: error\n";
  out += "data: ";
  out += error_body(dialect, error, request_id);
  out += "\n\n";
}

}  // namespace baton::api
