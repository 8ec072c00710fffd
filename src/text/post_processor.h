// The post-processor of tokenizer.json: ids in front of and behind a text, when a caller asks for them.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::text {

struct PostProcessor {
  std::vector<int32_t> prefix, suffix;

  // Supported: null, ByteLevel (which changes no ids), TemplateProcessing, BertProcessing, RobertaProcessing, Sequence.
  static Result<PostProcessor> from_json(const boost::json::value& value, const std::string& path);

 private:
  Status add(const boost::json::value& value, const std::string& path);
  Status add_template(const class JsonComponent& c);
  Status add_pair(const class JsonComponent& c);
};

}  // namespace baton::text
