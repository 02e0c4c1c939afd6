#include "src/cli/device.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "runtime/base/shared_library.hpp"
#include "runtime/jit/arch.hpp"

namespace ingot {

Result<cu::DeviceInfo> usable_gpu(const Environment& environment) {
  const auto driver = cu::DriverApi::open(library_search_path(environment.library_dirs));
  if (!driver) return Unexpected(driver.error());
  try {
    auto devices = cu::list_devices(**driver);
    if (devices.empty()) return fail(ErrorCode::not_found, "the driver shows no GPU");
    const auto arch = jit::arch_of(devices[0].compute_major, devices[0].compute_minor);
    if (!arch) return Unexpected(arch.error());
    return std::move(devices[0]);
  } catch (const EngineError& error) {
    return Unexpected(error.error());
  }
}

Result<DeviceChoice> choose_device(std::string_view wanted, const Environment& environment) {
  if (wanted == "cpu") return DeviceChoice{Device::cpu, "device cpu, as asked"};
  const auto gpu = usable_gpu(environment);
  if (gpu) {
    return DeviceChoice{Device::cuda, fmt::format("device cuda: {}, {:.0f} GB", gpu->name,
                                                  static_cast<double>(gpu->memory_bytes) / 1e9)};
  }
  if (wanted == "cuda") {
    return fail(
        ErrorCode::unsupported,
        fmt::format("--device cuda: {}; `ingot doctor` shows more, --device cpu runs without",
                    gpu.error().message));
  }
  return DeviceChoice{Device::cpu, fmt::format("device cpu: {}", gpu.error().message)};
}

}  // namespace ingot
