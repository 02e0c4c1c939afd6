#pragma once

#include <string_view>

namespace ingot {

/// The release, as the build's project() states it.
inline constexpr std::string_view kVersion = INGOT_VERSION;

}  // namespace ingot
