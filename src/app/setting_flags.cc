#include "app/setting_flags.h"

#include <fmt/format.h>

#include <cstdlib>

namespace baton::app {
namespace {

std::string description(const server::Setting& s) {
  std::string out(s.doc);
  const std::string value = server::text_of({}, s);
  return value.empty() ? out : fmt::format("{} [{}]", out, value);
}

void add_setting(CLI::App& c, const server::Setting& s, const std::shared_ptr<SettingFlags>& flags) {
  std::string names = fmt::format("--{}", s.name);
  for (const std::string_view alias : s.aliases) names += alias.front() == '!' ? "" : fmt::format(",--{}", alias);
  const std::string name(s.name);
  // Values are checked here as well as in load(), so that a wrong flag is wrong usage.
  const auto take = [flags, &s, name](const std::string& flag, const std::string& value) {
    server::Settings tried;
    if (const Status status = assign(tried, s, value, "--" + flag); !status.ok()) throw CLI::ValidationError(status.error().message);
    flags->given.emplace_back(flag, value);
  };
  if (!s.is_switch()) {
    c.add_option_function<std::vector<std::string>>(
         names,
         [take, name](const std::vector<std::string>& values) {
           for (const std::string& v : values) take(name, v);
         },
         description(s))
        ->type_name(s.words.empty() ? "VALUE" : fmt::format("{{{}}}", fmt::join(s.words, ",")))
        ->allow_extra_args(s.repeats())
        ->group(std::string(s.group));
    return;
  }
  c.add_flag_function(
       names, [take, name](int64_t count) { take(name, count > 0 ? "true" : "false"); }, description(s))
      ->group(std::string(s.group));
  std::string opposites = fmt::format("--no-{}", s.name);
  for (const std::string_view alias : s.aliases) opposites += alias.front() == '!' ? fmt::format(",--{}", alias.substr(1)) : "";
  c.add_flag_function(
       opposites, [take, name](int64_t) { take(name, "false"); }, fmt::format("The opposite of --{}", s.name))
      ->group(std::string(s.group));
}

}  // namespace

std::shared_ptr<SettingFlags> SettingFlags::add_to(CLI::App& command) {
  auto flags = std::make_shared<SettingFlags>();
  command.add_option("--config", flags->file, "YAML file with settings, `name: value` a line");
  for (const server::Setting& s : server::all_settings()) add_setting(command, s, flags);
  return flags;
}

Result<server::LoadedSettings> SettingFlags::load() const {
  server::SettingSources sources;
  sources.flags = given;
  sources.file = file;
  sources.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return server::load_settings(sources);
}

}  // namespace baton::app
