#include "src/cli/setting_flags.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "src/cli/settings_config.hpp"

namespace ingot {
namespace {

std::string default_text(const SettingSpec& spec) {
  const std::string shown = show(Settings{}, spec);
  return shown == "unset" || shown == "\"\"" || shown == "[]" || shown == "false"
             ? std::string()
             : fmt::format(" (default {})", shown);
}

std::string type_name(const SettingSpec& spec) {
  if (!spec.choices.empty()) {
    std::string names;
    for (const std::string_view choice : spec.choices) {
      names += (names.empty() ? "" : "|") + std::string(choice);
    }
    return names;
  }
  return std::visit(
      []<class T>(T Settings::*) -> std::string {
        if constexpr (std::is_same_v<T, double>) return "NUMBER";
        if constexpr (std::is_same_v<T, std::string> ||
                      std::is_same_v<T, std::vector<std::string>>) {
          return "TEXT";
        }
        return "N";
      },
      spec.member);
}

}  // namespace

void add_settings(CLI::App& app, SettingFlags& flags, SettingGroups groups, SettingsFile file) {
  for (const SettingSpec& spec : setting_specs()) {
    if (std::find(groups.begin(), groups.end(), spec.group) == groups.end()) continue;
    const std::string doc = std::string(spec.doc) + default_text(spec);
    CLI::Option* option = nullptr;
    if (std::holds_alternative<bool Settings::*>(spec.member)) {
      option = app.add_flag(std::string(spec.flag), flags.switches[&spec], doc);
    } else {
      option = app.add_option(std::string(spec.flag), flags.texts[&spec], doc)
                   ->type_name(type_name(spec))
                   ->allow_extra_args(false);
      const bool repeats =
          std::holds_alternative<std::vector<std::string> Settings::*>(spec.member);
      if (!repeats) option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
    }
    option->group("Settings");
  }
  if (file == SettingsFile::refused) return;
  app.add_option("--config", flags.config, "settings file (TOML); flags go before it")
      ->type_name("FILE.toml")
      ->group("Settings");
}

Result<LayeredSettings> resolve_settings(const CLI::App& app, const SettingFlags& flags,
                                         const Environment& environment) {
  LayeredSettings settings;
  if (!environment.cache_home.empty()) {
    if (auto applied =
            settings.apply(*find_setting("cache.dir"), (environment.cache_home / "ingot").string(),
                           environment.cache_home_from);
        !applied) {
      return Unexpected(applied.error());
    }
  }
  if (!flags.config.empty()) {
    if (auto applied = apply_settings_file(settings, flags.config); !applied) {
      return Unexpected(applied.error());
    }
  }
  for (const SettingSpec& spec : setting_specs()) {
    // A command may have a flag of the same name that is no setting.
    if (!flags.texts.contains(&spec) && !flags.switches.contains(&spec)) continue;
    const CLI::Option* option = app.get_option_no_throw(std::string(spec.flag));
    if (option == nullptr || option->count() == 0) continue;
    const auto given = flags.texts.find(&spec);
    const std::vector<std::string> none;
    if (auto applied = settings.apply_text(spec, given == flags.texts.end() ? none : given->second,
                                           std::string(spec.flag));
        !applied) {
      return Unexpected(applied.error());
    }
  }
  return settings;
}

}  // namespace ingot
