#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/chat/chat_session.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/settings.hpp"

namespace ingot {

/// The settings that a conversation has of its own: those of sampling and of thinking.
bool is_session_setting(const SettingSpec& spec);
/// The last part of its key: "top_p".
std::string_view short_name(const SettingSpec& spec);
/// By either name; nullptr where there is none.
const SettingSpec* find_session_setting(std::string_view name);

/// Back to its default.
void unset(Settings& settings, const SettingSpec& spec);
/// From words as a user types them. Error: as assign_text().
[[nodiscard]] Result<void> assign_words(Settings& settings, const SettingSpec& spec,
                                        const std::vector<std::string>& words);

using SettingWords = std::vector<std::pair<std::string, std::vector<std::string>>>;
/// Those that are not the defaults, for a file.
SettingWords session_settings(const Settings& settings);
/// Takes them over, the others of a session's settings become the defaults.
/// Error: invalid_argument for what this version does not know.
[[nodiscard]] Result<void> apply_session_settings(Settings& settings, const SettingWords& words);

/// What a conversation begins with.
ChatSessionOptions session_options(const Settings& settings, const LoadedModel& model);

}  // namespace ingot
