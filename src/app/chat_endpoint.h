// A server that speaks OpenAI's chat completions, as the commands that ask one see it: where it is, with which key, what it serves.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/client.h"

namespace baton::app {

struct ChatEndpoint {
  http::Url url = {};  // its path has no '/' at its end; "/v1" if none was given
  std::string api_key = {};

  static Result<ChatEndpoint> at(std::string_view base_url, std::string api_key);

  http::ClientOptions client_options(std::chrono::milliseconds silence) const;
  // A GET of the path behind the base.
  http::ClientRequest request(std::string_view path) const;
  // The first that it lists; empty if it lists none. kIo if the server cannot be reached, kInvalid for any other answer.
  Result<std::string> first_model() const;
  std::string shown() const;  // "http://127.0.0.1:8000/v1"
};

// BATON_API_KEY or OPENAI_API_KEY; empty if neither is set.
std::string key_of_environment();
// The message of an error in OpenAI's shape, or the beginning of whatever came.
std::string message_of(const http::ClientResponse& response);

}  // namespace baton::app
