#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "runtime/base/error.hpp"

namespace ingot {

/// `-` is standard input. What has no length beforehand (a pipe, a device) is read up to 32 MiB, so
/// that an endless one is refused before it has taken the memory.

/// Whether a file is there, of at most `max_bytes`, and does not begin as UTF-16 does, before
/// anything large is loaded. Errors: not_found, invalid_argument (a folder, too long, UTF-16).
[[nodiscard]] Result<void> check_text_file(const std::filesystem::path& file,
                                           std::size_t max_bytes);

/// The whole file. Errors: those of check_text_file, and io.
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& file,
                                                 std::size_t max_bytes);

}  // namespace ingot
