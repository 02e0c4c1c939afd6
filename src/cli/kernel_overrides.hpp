#pragma once

#include <span>
#include <string>

#include "runtime/base/error.hpp"
#include "tuner/overrides.hpp"

namespace ingot {

/// What --pin and --disable words force, by the families that this program has. Errors: those of
/// parse_overrides.
[[nodiscard]] Result<Overrides> read_overrides(std::span<const std::string> pins,
                                               std::span<const std::string> disabled);

}  // namespace ingot
