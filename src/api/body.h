// The body of a request as JSON: checked for its size first, then parsed, with the text of each field kept.
#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/limits.h"

namespace baton::api {

struct Body {
  struct Member {
    std::string_view name, raw;  // raw: as it stands in the body, valid JSON
    const boost::json::value* value;
  };

  // Refuses what is no JSON object in UTF-8, what is too large, too deep or too long, and fields of the outermost object that are there
  // twice: which one a client means cannot be known. Further in the last one counts. An escape of half a surrogate pair, which JavaScript
  // writes where it cut a text, becomes U+FFFD.
  static ApiResult<Body> parse(std::string_view text, const ParseLimits& limits);

  std::vector<Member> members;  // in their order

 private:
  struct Store {
    std::string repaired;
    boost::json::value root;
  };
  std::unique_ptr<Store> store_;  // what the members point into, besides the text
};

// How many values a text can hold, JSON or not, at most.
size_t count_values(std::string_view text);

}  // namespace baton::api
