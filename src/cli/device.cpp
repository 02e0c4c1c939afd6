#include "src/cli/device.hpp"

namespace ingot {

Result<DeviceChoice> choose_device(std::string_view wanted) {
  if (wanted == "cuda") {
    return fail(
        ErrorCode::unsupported,
        "--device cuda: this build runs the model on the CPU, the device engine is not part "
        "of it; use --device cpu");
  }
  if (wanted == "cpu") return DeviceChoice{Device::cpu, "device cpu, as asked"};
  return DeviceChoice{Device::cpu, "device cpu: this build has no device engine"};
}

}  // namespace ingot
