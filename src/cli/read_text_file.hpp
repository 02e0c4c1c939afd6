#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "runtime/base/error.hpp"

namespace ingot {

/// Whether a file is there and of at most `max_bytes`, before anything large is loaded.
/// Errors: not_found, invalid_argument (a folder, too long).
[[nodiscard]] Result<void> check_text_file(const std::filesystem::path& file,
                                           std::size_t max_bytes);

/// The whole file. Errors: those of check_text_file, and io.
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& file,
                                                 std::size_t max_bytes);

}  // namespace ingot
