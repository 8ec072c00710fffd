#include "api/reference.h"

#include <algorithm>

#include "api/endpoints.h"

namespace baton::api {
namespace {

constexpr std::string_view kBegin = "<!-- fields: ", kEnd = "<!-- end of fields -->\n";

std::string list_of_fields(std::span<const Field> fields, Use use, std::string_view title) {
  std::string text;
  for (const Field& f : fields) {
    if (f.use != use) continue;
    if (text.empty()) text += fmt::format("\n{}\n\n", title);
    text += fmt::format("* `{}`: {}", f.name, f.what);
    if (!f.harmless.empty()) text += fmt::format(" (`{}` is taken)", f.harmless);
    text += '\n';
  }
  return text;
}

}  // namespace

std::vector<ReferenceTable> reference_tables() {
  return {{"chat", chat_groups()[0]},
          {"completions", completion_groups()[0]},
          {"messages", messages_groups()[0]},
          {"messages, generating", messages_groups()[1]},
          {"responses", responses_groups()[0]},
          {"generate", generate_groups()[0]},
          {"generate, sampling", generate_sampling_groups()[0]},
          {"tokenize", tokenize_groups()[0]},
          {"tokenize, both", tokenize_groups()[1]},
          {"detokenize", detokenize_groups()[0]},
          {"general", openai_fields()},
          {"streams", stream_fields()},
          {"sampling", sampling_fields()},
          {"constraints", grammar_fields()}};
}

std::string reference_text(std::span<const Field> fields) {
  std::string text;
  if (std::any_of(fields.begin(), fields.end(), [](const Field& f) { return f.use == Use::kTaken; })) {
    text += "| field | type | |\n|---|---|---|\n";
    for (const Field& f : fields)
      if (f.use == Use::kTaken) text += fmt::format("| `{}` | {}{} | {} |\n", f.name, type_text(f), f.required ? ", required" : "", f.what);
  }
  text += list_of_fields(fields, Use::kNoEffect, "Taken without effect:");
  text += list_of_fields(fields, Use::kRefused, "Refused:");
  return text + '\n';
}

Result<std::string> with_reference(std::string_view page) {
  const auto wrong = [](std::string message) { return Error{Error::Kind::kInvalid, std::move(message)}; };
  std::string out;
  auto tables = reference_tables();
  for (size_t at = 0;;) {
    const size_t begin = page.find(kBegin, at);
    if (begin == std::string_view::npos) {
      out += page.substr(at);
      break;
    }
    const size_t line = page.find(" -->\n", begin);
    const size_t end = page.find(kEnd, begin);
    if (line == std::string_view::npos || end == std::string_view::npos) return wrong("a mark of fields has no end");
    const std::string_view name = page.substr(begin + kBegin.size(), line - begin - kBegin.size());
    const auto table = std::find_if(tables.begin(), tables.end(), [&](const ReferenceTable& t) { return t.name == name; });
    if (table == tables.end()) return wrong(fmt::format("the fields '{}' are not known, or there twice", name));
    out += page.substr(at, line + 5 - at);
    out += '\n';
    out += reference_text(table->fields);
    out += kEnd;
    tables.erase(table);
    at = end + kEnd.size();
  }
  if (!tables.empty()) return wrong(fmt::format("the page has no fields '{}'", tables.front().name));
  return out;
}

}  // namespace baton::api
