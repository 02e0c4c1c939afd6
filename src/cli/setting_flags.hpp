#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/cli/environment.hpp"
#include "src/cli/settings.hpp"

namespace CLI {
class App;
}

namespace ingot {

using SettingGroups = std::initializer_list<SettingGroup>;

/// The flags of one command that stand for settings, as given.
struct SettingFlags {
  std::map<const SettingSpec*, std::vector<std::string>> texts;
  std::map<const SettingSpec*, bool> switches;
  std::string config;
};

/// Whether a command takes `--config FILE.toml`.
enum class SettingsFile { accepted, refused };

/// Gives a command the flags of these groups. `flags` must stay where it is until it is parsed.
void add_settings(CLI::App& app, SettingFlags& flags, SettingGroups groups,
                  SettingsFile file = SettingsFile::accepted);

/// The settings of a parsed command: defaults, then the environment, then the file, then the flags.
/// Errors: invalid_argument, and what reading the settings file reports.
[[nodiscard]] Result<LayeredSettings> resolve_settings(const CLI::App& app,
                                                       const SettingFlags& flags,
                                                       const Environment& environment);

}  // namespace ingot
