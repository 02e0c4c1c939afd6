#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/cuda/context.hpp"
#include "src/cli/environment.hpp"

namespace ingot {

enum class Device { cpu, cuda };

struct DeviceChoice {
  Device device = Device::cpu;
  std::string reason;  ///< one line for people: what was taken and why
};

/// The first GPU, where it can run the model. Errors: not_found without a driver or a GPU,
/// unsupported for one without kernels; the message says which.
[[nodiscard]] Result<cu::DeviceInfo> usable_gpu(const Environment& environment);

/// Decides where the model runs: on the first GPU where there is a driver, a GPU and kernels for
/// its architecture, else on the CPU.
/// @param wanted "auto", "cuda" or "cpu"
/// Error: unsupported if `wanted` cannot be had here; the message says why and what to do.
[[nodiscard]] Result<DeviceChoice> choose_device(std::string_view wanted,
                                                 const Environment& environment);

}  // namespace ingot
