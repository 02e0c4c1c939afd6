#pragma once

#include <filesystem>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// Folders in which the model that ingot brings along, ingot-tiny, may lie; the best first. They
/// are found from the program's own place, so an installed or moved program finds the model that
/// came with it: share/ingot/models beside its bin/, then configs/models beside a build folder.
/// @param program  the running executable's path, links resolved; empty where it is not known
std::vector<std::filesystem::path> builtin_model_places(const std::filesystem::path& program);

/// The first of those places that holds a config.json; whether the rest is whole shows when it is
/// opened. Error: not_found, with the places that were looked at.
[[nodiscard]] Result<std::filesystem::path> find_builtin_model(
    const std::filesystem::path& program);

}  // namespace ingot
