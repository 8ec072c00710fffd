#include "app/chat_endpoint.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <cstdlib>

#include "app/json_members.h"

namespace baton::app {
namespace json = boost::json;

Result<ChatEndpoint> ChatEndpoint::at(std::string_view base_url, std::string api_key) {
  ChatEndpoint e;
  BATON_ASSIGN(e.url, http::Url::parse(base_url));
  while (e.url.path.ends_with('/')) e.url.path.pop_back();
  if (e.url.path.empty()) e.url.path = "/v1";
  e.api_key = std::move(api_key);
  return e;
}

http::ClientOptions ChatEndpoint::client_options(std::chrono::milliseconds silence) const {
  http::ClientOptions o;
  o.host = url.host;
  o.port = url.port;
  o.tls = url.tls;
  o.silence_timeout = silence;
  return o;
}

http::ClientRequest ChatEndpoint::request(std::string_view path) const {
  http::ClientRequest r;
  r.target = url.path + std::string(path);
  if (!api_key.empty()) r.headers.emplace_back("Authorization", "Bearer " + api_key);
  return r;
}

std::string ChatEndpoint::shown() const {
  const bool brackets = url.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}{}", url.tls ? "https" : "http", brackets ? "[" : "", url.host, brackets ? "]" : "", url.port,
                     url.path);
}

Result<std::string> ChatEndpoint::first_model() const {
  constexpr std::chrono::seconds kSilence(30);
  http::Client client(client_options(kSilence));
  const auto response = client.call(request("/models"));
  if (!response.ok()) return Error{Error::Kind::kIo, fmt::format("{}: {}", shown(), response.error().message)};
  if (response->status != 200) return Error{Error::Kind::kInvalid, fmt::format("{}/models: {}", shown(), message_of(*response))};
  boost::system::error_code failed;
  const json::value body = json::parse(response->body, failed);
  return failed ? std::string() : text_at(first_at(body.if_object(), "data"), "id");
}

std::string key_of_environment() {
  for (const char* name : {"BATON_API_KEY", "OPENAI_API_KEY"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return {};
}

std::string message_of(const http::ClientResponse& response) {
  boost::system::error_code failed;
  const json::value body = json::parse(response.body, failed);
  std::string message;
  if (!failed) message = text_at(object_at(body.if_object(), "error"), "message");
  return fmt::format("status {}: {}", response.status, message.empty() ? response.body.substr(0, 200) : message);
}

}  // namespace baton::app
