#include "text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include "text/json_component.h"
#include "text/unicode_classes.h"
#include "text/unicode_ranges.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr size_t kMostSteps = 64;
constexpr std::string_view kSupported = "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace and Sequence of these";

bool is_space(char32_t c) { return (UnicodeClasses::get().of(c) & kSpace) != 0; }

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char32_t c = read_valid_char(p);
    if (c == 0x130)
      out += "i\xCC\x87";  // the one letter whose small form is two characters
    else
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

std::string without_accents(std::string_view text) {
  std::string out;
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* const begin = p;
    const char32_t c = read_valid_char(p);
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    if (category < UTF8PROC_CATEGORY_MN || category > UTF8PROC_CATEGORY_ME || contains(young_marks(), c)) out.append(begin, p);
  }
  return out;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  while (left && begin < end) {
    const char* p = begin;
    if (!is_space(read_valid_char(p))) break;
    begin = p;
  }
  while (right && begin < end) {
    const char* p = end - 1;
    while (is_continuation(*p)) --p;
    const char* q = p;
    if (!is_space(read_valid_char(q))) break;
    end = p;
  }
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

Result<Normalizer> Normalizer::from_json(const boost::json::value& value, const std::string& path) {
  Normalizer n;
  if (!value.is_null()) BATON_TRY(n.add(value, path));
  return n;
}

Status Normalizer::add(const boost::json::value& value, const std::string& path) {
  BATON_ASSIGN(const JsonComponent c, JsonComponent::of(value, path));
  BATON_ASSIGN(const std::string type, c.type());
  if (steps_.size() >= kMostSteps) return Error{Error::Kind::kInvalid, fmt::format("{}: more than {} steps", path, kMostSteps)};
  if (type == "Sequence") {
    BATON_ASSIGN(const auto* list, c.array("normalizers"));
    for (size_t i = 0; i < list->size(); ++i) BATON_TRY(add((*list)[i], fmt::format("{}[{}]", c.path_to("normalizers"), i)));
  } else if (type == "NFC") {
    steps_.emplace_back(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    steps_.emplace_back(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    steps_.emplace_back(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    steps_.emplace_back(UnicodeForm::kNfkd);
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps_.emplace_back(StripAccents{});
  } else if (type == "Strip") {
    BATON_ASSIGN(const bool left, c.flag("strip_left", true));
    BATON_ASSIGN(const bool right, c.flag("strip_right", true));
    steps_.emplace_back(Strip{left, right});
  } else if (type == "Prepend") {
    BATON_ASSIGN(std::string prefix, c.text("prepend"));
    steps_.emplace_back(Prepend{std::move(prefix)});
  } else if (type == "Replace") {
    BATON_ASSIGN(SplitPattern pattern, read_pattern(c));
    BATON_ASSIGN(std::string content, c.text("content"));
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else {
    return c.unknown_type("normalizer", type, kSupported);
  }
  return {};
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string current(text);
  for (const Step& step : steps_) {
    BATON_ASSIGN(current, apply_step(step, current));
  }
  return current;
}

Result<std::string> Normalizer::apply_step(const Step& step, std::string_view text) {
  if (text.empty()) return std::string();  // also no prefix: the reference adds none to nothing
  if (const auto* form = std::get_if<UnicodeForm>(&step)) return unicode_form(text, *form);
  if (std::holds_alternative<Lowercase>(step)) return lowercase(text);
  if (std::holds_alternative<StripAccents>(step)) return without_accents(text);
  if (const auto* strip = std::get_if<Strip>(&step)) return std::string(stripped(text, strip->left, strip->right));
  if (const auto* prepend = std::get_if<Prepend>(&step)) return prepend->prefix + std::string(text);
  const auto& replace = std::get<Replace>(step);
  std::vector<TextRange> matches;
  BATON_TRY(find_matches(replace.pattern, text, matches));
  std::string out;
  size_t at = 0;
  for (const TextRange& m : matches) {
    out += text.substr(at, m.begin - at);
    out += replace.content;
    at = m.end;
  }
  out += text.substr(at);
  return out;
}

}  // namespace baton::text
