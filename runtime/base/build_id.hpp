#pragma once

#include <filesystem>
#include <string>

#include "runtime/base/error.hpp"

namespace ingot {

/// What tells one build of a shared object from another: its GNU build id in hexadecimal, or, for a
/// file that carries none, "xxh3-" and a digest of all its bytes (slower: it reads the whole file).
/// Errors: not_found, io.
[[nodiscard]] Result<std::string> build_id_of(const std::filesystem::path& file);

}  // namespace ingot
