#include "src/cli/session_settings.hpp"

#include <fmt/core.h>

#include <random>

namespace ingot {
namespace {

/// Ctrl-C waits for no longer; half of what a person takes for a hang.
constexpr double kCpuStep_s = 0.5;

/// The words that assign_words() makes the same value of; none where it is unset.
std::vector<std::string> words_of(const Settings& settings, const SettingSpec& spec) {
  return std::visit(
      [&]<class T>(T Settings::*member) -> std::vector<std::string> {
        const T& value = settings.*member;
        if constexpr (std::is_same_v<T, bool>) return {value ? "true" : "false"};
        if constexpr (std::is_same_v<T, std::string>) return {value};
        if constexpr (std::is_same_v<T, std::vector<std::string>>) return value;
        if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>) {
          return {fmt::format("{}", value)};
        }
        if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
          if (value) return {fmt::format("{}", *value)};
        }
        return {};
      },
      spec.member);
}

}  // namespace

bool is_session_setting(const SettingSpec& spec) {
  return spec.group == SettingGroup::sampling || spec.group == SettingGroup::chat;
}

std::string_view short_name(const SettingSpec& spec) {
  return spec.key.substr(spec.key.rfind('.') + 1);
}

const SettingSpec* find_session_setting(std::string_view name) {
  for (const SettingSpec& spec : setting_specs()) {
    if (is_session_setting(spec) && (short_name(spec) == name || spec.key == name)) return &spec;
  }
  return nullptr;
}

void unset(Settings& settings, const SettingSpec& spec) {
  const Settings defaults;
  std::visit([&](auto member) { settings.*member = defaults.*member; }, spec.member);
}

Result<void> assign_words(Settings& settings, const SettingSpec& spec,
                          const std::vector<std::string>& words) {
  const auto* flag = std::get_if<bool Settings::*>(&spec.member);
  if (flag == nullptr) return assign_text(settings, spec, words);
  if (words.size() != 1 || (words[0] != "true" && words[0] != "false")) {
    return fail(ErrorCode::invalid_argument, "must be true or false");
  }
  settings.*(*flag) = words[0] == "true";
  return {};
}

SettingWords session_settings(const Settings& settings) {
  SettingWords out;
  const Settings defaults;
  for (const SettingSpec& spec : setting_specs()) {
    if (!is_session_setting(spec)) continue;
    std::vector<std::string> words = words_of(settings, spec);
    if (words != words_of(defaults, spec)) out.emplace_back(short_name(spec), std::move(words));
  }
  return out;
}

Result<void> apply_session_settings(Settings& settings, const SettingWords& words) {
  Settings changed = settings;
  for (const SettingSpec& spec : setting_specs()) {
    if (is_session_setting(spec)) unset(changed, spec);
  }
  for (const auto& [name, values] : words) {
    const SettingSpec* spec = find_session_setting(name);
    if (spec == nullptr) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("its setting \"{}\" is unknown to this version of ingot", name));
    }
    if (auto assigned = assign_words(changed, *spec, values); !assigned) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("its setting {} {}", name, assigned.error().message));
    }
  }
  settings = std::move(changed);
  return {};
}

ChatSessionOptions session_options(const Settings& settings, const LoadedModel& model) {
  ChatSessionOptions out;
  out.encoding.thinking = thinking_from_name(settings.thinking);
  out.encoding.efforts = model.efforts;
  out.encoding.keep_thinking = settings.keep_thinking;
  out.sampling = sampling_params(settings, std::random_device{}());
  out.scheduler = scheduler_options(settings);
  if (model.device == Device::cpu) out.step_s = kCpuStep_s;
  out.system = settings.system;
  return out;
}

}  // namespace ingot
