#pragma once

#include <filesystem>
#include <string_view>

#include "src/cli/settings.hpp"

namespace ingot {

/// Applies a settings file (TOML, one table a group: `[sampling] top_p = 0.9`).
/// Errors: invalid_argument that names file and line for broken TOML, an unknown key (with the
/// nearest known one), a wrong type or a value out of range.
[[nodiscard]] Result<void> apply_settings_toml(LayeredSettings& settings, std::string_view toml,
                                               std::string_view origin);

/// The same from a file of at most 1 MiB. Also: not_found, io.
[[nodiscard]] Result<void> apply_settings_file(LayeredSettings& settings,
                                               const std::filesystem::path& file);

}  // namespace ingot
