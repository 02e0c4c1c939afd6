#pragma once

#include <filesystem>
#include <string_view>

namespace ingot {

/// Writes a small file whole. Throws EngineError(io).
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace ingot
