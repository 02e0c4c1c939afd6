#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

enum class Device { cpu, cuda };

struct DeviceChoice {
  Device device = Device::cpu;
  std::string reason;  ///< one line for people: what was taken and why
};

/// Decides where the model runs.
/// @param wanted "auto", "cuda" or "cpu"
/// Error: unsupported if `wanted` cannot be had here; the message says why and what to do.
[[nodiscard]] Result<DeviceChoice> choose_device(std::string_view wanted);

}  // namespace ingot
