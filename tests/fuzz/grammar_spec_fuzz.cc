// Any bytes as a grammar of a client: refused with a message, or let through. The first byte chooses the kind. With BATON_XGRAMMAR in the
// environment, what was let through is compiled and written from as well, in this very process.
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "text/grammar/backend.h"
#include "text/grammar/pattern_rule.h"
#include "text/grammar/spec_check.h"
#include "text/parse/argument_types.h"
#include "text/utf8.h"

using namespace baton::text;  // NOLINT(google-build-using-namespace)

namespace {

const GrammarBackend* backend() {
  static const std::unique_ptr<GrammarBackend> instance = []() -> std::unique_ptr<GrammarBackend> {
    if (std::getenv("BATON_XGRAMMAR") == nullptr) return nullptr;
    GrammarVocabulary vocabulary;
    for (int c = 0; c < 256; ++c) vocabulary.tokens.emplace_back(1, static_cast<char>(c));
    vocabulary.tokens.emplace_back("\xFF\x80");
    vocabulary.stop_ids = {256};
    auto created = GrammarBackend::create(vocabulary, {});
    return created.ok() ? std::move(*created) : nullptr;
  }();
  return instance.get();
}

void write_from(const GrammarBackend& library, const GrammarSpec& spec) {
  const auto grammar = library.compile(spec);
  if (!grammar.ok()) return;
  const auto matcher = library.matcher(*grammar);
  std::vector<int32_t> row(library.row_words());
  uint32_t choice = 1;
  for (int step = 0; step < 20; ++step) {
    if (!library.fill(*matcher, row).ok()) return;
    int32_t token = -1;
    for (int32_t id = 0; id < 257; ++id)
      if ((static_cast<uint32_t>(row[static_cast<size_t>(id) / 32]) >> id % 32 & 1) != 0 &&
          (choice = choice * 1664525 + 1013904223) >> 28 == 0)
        token = id;
    if (token < 0) continue;
    if (!*library.accept(*matcher, token)) std::abort();
    if (*library.terminated(*matcher)) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const GrammarSpec spec{static_cast<GrammarSpec::Kind>(data[0] % 5), text};
  const auto checked = check_grammar_spec(spec, {});
  if (!checked.ok() && checked.error().message.empty()) std::abort();
  for (const bool in_json : {false, true})
    if (const auto rule = pattern_rule(text, in_json); rule.ok() ? !valid_utf8(*rule) : rule.error().message.empty()) std::abort();
  boost::json::error_code error;
  if (const auto value = boost::json::parse(text, error); !error) {
    ToolTypes types;
    types.add("f", value);
    types.type("f", "a");
  }
  if (checked.ok() && backend() != nullptr) write_from(*backend(), spec);
  return 0;
}
