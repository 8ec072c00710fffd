// The bytes of a request of OpenAI's API, made from a turn of a workload.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "http/message.h"
#include "load/workload.h"

namespace baton::load {

enum class Api : uint8_t { kCompletions, kChat };

struct RequestOptions {
  Api api = Api::kCompletions;
  std::string host = {};    // of the Host field
  std::string target = {};  // path and query
  http::HeaderList headers = {};
  std::string model = {};
  Vocabulary vocabulary = {};
  bool ids = true;         // completions: prompts as token ids; otherwise, and in chats, as words
  bool ignore_eos = true;  // the answer is as long as asked
  double temperature = 0;
  boost::json::object extra = {};  // members of the body, which win over those made here
};

std::string body_of(const Turn& turn, const RequestOptions& options);
// With its head.
std::string request_bytes(const Turn& turn, const RequestOptions& options);

}  // namespace baton::load
