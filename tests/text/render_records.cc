// render_records: JSON lines {"template", "variables"} on standard input; on standard output for each a line {"text", "untrusted"} or
// {"error"}. For jinja_check.py, which compares with the reference. Variables are untrusted; the clock stands at 2026-03-14 15:09:26.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <iostream>

#include "text/template/template.h"

namespace json = boost::json;
using namespace baton::text;  // NOLINT(google-build-using-namespace)

namespace {

json::object render(const jinja::Value& record) {
  const auto field = [&](const char* name) -> const jinja::Value& { return *record.as_dict().find(std::string_view(name)); };
  const auto program = jinja::Template::parse(field("template").view());
  if (!program.ok()) return {{"error", "read: " + program.error().message}};
  std::vector<std::pair<std::string, jinja::Value>> variables;
  for (const auto& [name, value] : field("variables").as_dict().entries) variables.emplace_back(name.view(), value);
  jinja::RenderOptions options;
  options.now.tm_year = 126, options.now.tm_mon = 2, options.now.tm_mday = 14, options.now.tm_hour = 15, options.now.tm_min = 9;
  options.now.tm_sec = 26, options.now.tm_wday = 6, options.now.tm_yday = 72;
  const auto result = program->render(variables, options);
  if (const auto* failure = std::get_if<jinja::Failure>(&result)) return {{"error", failure->message}, {"line", failure->line}};
  const auto& out = std::get<jinja::Rendered>(result);
  json::array ranges;
  for (const TextRange& r : out.untrusted) ranges.push_back(json::array{r.begin, r.end});
  return {{"text", out.text}, {"untrusted", std::move(ranges)}};
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto record = jinja::parse_json(line, true, "record");
    std::cout << (record.ok() ? json::serialize(render(*record)) : json::serialize(json::object{{"error", record.error().message}}))
              << '\n';
  }
}
