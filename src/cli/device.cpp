#include "src/cli/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "runtime/base/shared_library.hpp"
#include "runtime/jit/arch.hpp"

namespace ingot {

Result<cu::DeviceInfo> usable_gpu(const std::vector<int>& wanted, const Environment& environment) {
  const auto driver = cu::DriverApi::open(library_search_path(environment.library_dirs));
  if (!driver) return Unexpected(driver.error());
  try {
    auto devices = cu::list_devices(**driver);
    if (devices.empty()) return fail(ErrorCode::not_found, "the driver shows no GPU");
    for (const int ordinal : wanted) {
      if (ordinal >= static_cast<int>(devices.size())) {
        return fail(ErrorCode::not_found,
                    fmt::format("{} tensor parallel ranks need GPU {}, and the driver shows {}",
                                wanted.size(), ordinal, devices.size()));
      }
      const auto& device = devices[static_cast<std::size_t>(ordinal)];
      const auto arch = jit::arch_of(device.compute_major, device.compute_minor);
      if (!arch) return Unexpected(arch.error());
    }
    return std::move(devices[static_cast<std::size_t>(wanted[0])]);
  } catch (const EngineError& error) {
    return Unexpected(error.error());
  }
}

Result<std::vector<int>> device_list(std::string_view text, int tp_size) {
  std::vector<int> devices;
  if (text.empty()) {
    for (int rank = 0; rank < tp_size; ++rank)
      devices.push_back(rank);
    return devices;
  }
  const std::string_view whole = text;
  const auto refused = [&](std::string_view why) {
    return fail(ErrorCode::invalid_argument, fmt::format("--devices \"{}\": {}", whole, why));
  };
  for (;;) {
    int device = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), device);
    if (error != std::errc() || device < 0)
      return refused("must be numbers of GPUs with commas between them, such as \"0,2\"");
    if (std::find(devices.begin(), devices.end(), device) != devices.end())
      return refused(fmt::format("names GPU {} twice; name each once", device));
    devices.push_back(device);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) break;
    if (text[0] != ',')
      return refused("must be numbers of GPUs with commas between them, such as \"0,2\"");
    text.remove_prefix(1);
  }
  if (static_cast<int>(devices.size()) != tp_size) {
    return refused(
        fmt::format("names {} GPUs for {} tensor parallel ranks (--tp)", devices.size(), tp_size));
  }
  return devices;
}

Result<DeviceChoice> choose_device(std::string_view wanted, const std::vector<int>& devices,
                                   const Environment& environment) {
  if (wanted == "cpu") return DeviceChoice{Device::cpu, "device cpu, as asked"};
  const auto gpu = usable_gpu(devices, environment);
  if (gpu) {
    return DeviceChoice{Device::cuda,
                        fmt::format("device cuda: {}{}, {:.0f} GB",
                                    devices.size() > 1 ? fmt::format("{} x ", devices.size()) : "",
                                    gpu->name, static_cast<double>(gpu->memory_bytes) / 1e9)};
  }
  if (wanted == "cuda") {
    return fail(
        ErrorCode::unsupported,
        fmt::format("--device cuda: {}; `ingot doctor` shows more, --device cpu runs without",
                    gpu.error().message));
  }
  return DeviceChoice{Device::cpu, fmt::format("device cpu: {}", gpu.error().message)};
}

std::string device_notice(const DeviceChoice& choice) {
  std::size_t end = choice.reason.size();
  for (const std::string_view more : {" in /", " nor by ", " (", "; "})
    end = std::min(end, choice.reason.find(more));
  if (end == choice.reason.size()) return choice.reason;
  return choice.reason.substr(0, end) + "; `ingot doctor` says more";
}

}  // namespace ingot
