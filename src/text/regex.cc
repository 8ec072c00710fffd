#include "text/regex.h"

#include <fmt/format.h>

#include <utility>

#include "text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace baton::text {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKib = 256 << 10;
constexpr uint32_t kNestLimit = 100;  // of brackets

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return std::string(reinterpret_cast<const char*>(text));
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using CodePointer = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;

}  // namespace

struct Regex::Code {
  CodePointer pattern;
  MatchContext context;  // limits; read only while matching
  std::string source;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return Error{Error::Kind::kInvalid, fmt::format("a pattern of {} bytes; at most {} are accepted", pattern.size(), kMaxPatternBytes)};
  BATON_ASSIGN(const std::string translated, translate_pattern(pattern));

  const CompileContext compile_context(pcre2_compile_context_create(nullptr));
  pcre2_set_parens_nest_limit(compile_context.get(), kNestLimit);
  // Ruby's ^ and $ look at lines; \d, \w and [[:alpha:]] at Unicode.
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  size_t error_at = 0;
  auto code = std::make_unique<Code>();
  code->pattern.reset(pcre2_compile(units(translated), translated.size(), kOptions, &error, &error_at, compile_context.get()));
  if (code->pattern == nullptr)
    return Error{Error::Kind::kUnsupported, fmt::format("the pattern '{}' was not understood: {}", pattern, pcre2_message(error))};
  // Where the machine allows no JIT, the interpreter matches the same, slower.
  pcre2_jit_compile(code->pattern.get(), PCRE2_JIT_COMPLETE);
  code->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(code->context.get(), kMatchLimit);
  pcre2_set_heap_limit(code->context.get(), kHeapLimitKib);
  code->source = pattern;
  return Regex(std::move(code));
}

Status Regex::find_all(std::string_view text, std::vector<TextRange>& matches) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t last_match_end = kNone;
  size_t from = 0;
  while (from <= text.size()) {
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int found = pcre2_match(code_->pattern.get(), units(text), text.size(), from, options, data.get(), code_->context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      // The interpreter keeps its stack on the heap, within the limit above.
      options |= PCRE2_NO_JIT;
      found = pcre2_match(code_->pattern.get(), units(text), text.size(), from, options, data.get(), code_->context.get());
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      return Error{Error::Kind::kExhausted, fmt::format("the pre-tokenizer's pattern '{}' gave up on a text of {} bytes: {}", code_->source,
                                                        text.size(), pcre2_message(found))};
    const size_t* range = pcre2_get_ovector_pointer(data.get());
    // \K is refused when translated, so a match never begins behind its end.
    const size_t begin = range[0], end = range[1];
    if (begin == end && last_match_end == end) {
      if (from >= text.size()) break;
      do ++from;
      while (from < text.size() && is_continuation(text[from]));
      continue;
    }
    from = last_match_end = end;
    matches.push_back({begin, end});
  }
  return {};
}

}  // namespace baton::text
