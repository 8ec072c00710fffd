#include "app/eval_answerer.h"

#include <boost/json/serialize.hpp>

namespace baton::app {

std::string request_body(const evaluate::Question& question, const AskOptions& ask, const std::string& model) {
  boost::json::object body = question.request;
  body["model"] = model;
  body["max_tokens"] = ask.max_tokens;
  // Both, so that a server's own defaults change nothing.
  body["temperature"] = ask.temperature;
  body["top_p"] = ask.top_p;
  if (ask.temperature > 0) body["seed"] = ask.seed;
  if (!ask.reasoning_effort.empty()) body["reasoning_effort"] = ask.reasoning_effort;
  return boost::json::serialize(body);
}

}  // namespace baton::app
