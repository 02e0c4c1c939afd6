#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/cuda/context.hpp"
#include "src/cli/environment.hpp"

namespace ingot {

enum class Device { cpu, cuda };

struct DeviceChoice {
  Device device = Device::cpu;
  std::string reason;  ///< one line for people: what was taken and why
};

/// The first of the GPUs, where all of them can run the model. Errors: not_found without a driver
/// or so many GPUs, unsupported for one without kernels; the message says which.
/// @param devices  device_list() of the ranks' GPUs
[[nodiscard]] Result<cu::DeviceInfo> usable_gpu(const std::vector<int>& devices,
                                                const Environment& environment);

/// Decides where the model runs: on GPUs where there is a driver, a GPU for each rank and kernels
/// for their architecture, else on the CPU.
/// @param wanted   "auto", "cuda" or "cpu"
/// @param devices  device_list() of the ranks' GPUs
/// Error: unsupported if `wanted` cannot be had here; the message says why and what to do.
[[nodiscard]] Result<DeviceChoice> choose_device(std::string_view wanted,
                                                 const std::vector<int>& devices,
                                                 const Environment& environment);

/// The GPUs of a model's ranks.
/// @param text  numbers with commas between them: "0,2"; empty: the first ones
/// Error: invalid_argument for what is no list of tp_size different GPUs.
[[nodiscard]] Result<std::vector<int>> device_list(std::string_view text, int tp_size);

/// The choice and its reason as a start says them, on one line of a terminal: without the places
/// that were looked in and what to install, which `ingot doctor` shows.
std::string device_notice(const DeviceChoice& choice);

}  // namespace ingot
