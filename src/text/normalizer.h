// The normalizer of tokenizer.json: what happens to text before it is cut into words.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/split.h"

namespace baton::text {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// The Unicode form of valid UTF-8. Characters younger than the reference's tables (not_normalized()) pass through.
std::string unicode_form(std::string_view text, UnicodeForm form);

class Normalizer {
 public:
  // Supported: null, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, Sequence.
  static Result<Normalizer> from_json(const boost::json::value& value, const std::string& path);

  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8, and so is the result.
  Result<std::string> apply(std::string_view text) const;

 private:
  struct Lowercase {};
  struct StripAccents {};
  struct Strip {
    bool left = false, right = false;
  };
  struct Prepend {
    std::string prefix;
  };
  struct Replace {
    SplitPattern pattern;
    std::string content;
  };
  using Step = std::variant<UnicodeForm, Lowercase, StripAccents, Strip, Prepend, Replace>;

  Status add(const boost::json::value& value, const std::string& path);
  static Result<std::string> apply_step(const Step& step, std::string_view text);

  std::vector<Step> steps_;
};

}  // namespace baton::text
