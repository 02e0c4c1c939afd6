#pragma once

#include <filesystem>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// That a file which a command is told to write is none that would be lost: there is no regular
/// file yet, or --force was given. Pipes and devices are nobody's loss. To be asked before anything
/// that takes time. Error: invalid_argument.
[[nodiscard]] Result<void> check_new_file(const std::filesystem::path& path, bool force);

/// Writes a small file whole. Throws EngineError(io).
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace ingot
