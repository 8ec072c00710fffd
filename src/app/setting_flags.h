// The settings of a server as flags of a command.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/settings.h"

namespace baton::app {

struct SettingFlags {
  std::vector<std::pair<std::string, std::string>> given;  // in the order of the command line
  std::string file;

  // It outlives the command.
  static std::shared_ptr<SettingFlags> add_to(CLI::App& command);
  // From flags, environment and file.
  Result<server::LoadedSettings> load() const;
};

}  // namespace baton::app
