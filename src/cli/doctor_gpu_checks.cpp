#include <fmt/core.h>

#include "runtime/base/shared_library.hpp"
#include "runtime/comm/nccl_api.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/driver_api.hpp"
#include "runtime/jit/nvrtc_api.hpp"
#include "src/cli/doctor_checks.hpp"

namespace ingot {
namespace {

using State = Finding::State;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

Finding describe(const cu::DeviceInfo& device) {
  return {fmt::format("gpu {}", device.ordinal), State::good,
          fmt::format("{}, compute capability {}.{}, {} SMs, {:.1f} GiB", device.name,
                      device.compute_major, device.compute_minor, device.sm_count,
                      static_cast<double>(device.memory_bytes) / kGiB),
          ""};
}

/// Which pairs of cards reach each other's memory.
Finding examine_peers(const cu::DriverApi& driver, const std::vector<cu::DeviceInfo>& devices) {
  int pairs = 0, reachable = 0;
  for (const cu::DeviceInfo& a : devices) {
    for (const cu::DeviceInfo& b : devices) {
      if (a.ordinal == b.ordinal) continue;
      cu::CUdevice from = 0, to = 0;
      int can = 0;
      driver.check(driver.cuDeviceGet(&from, a.ordinal), "cuDeviceGet");
      driver.check(driver.cuDeviceGet(&to, b.ordinal), "cuDeviceGet");
      driver.check(driver.cuDeviceCanAccessPeer(&can, from, to), "cuDeviceCanAccessPeer");
      ++pairs;
      reachable += can != 0;
    }
  }
  const std::string detail = fmt::format("{} of {} ordered pairs of cards", reachable, pairs);
  if (reachable == pairs) return {"peer access", State::good, detail, ""};
  return {"peer access", State::absent, detail,
          "tensor parallel goes through NCCL where peers cannot reach each other"};
}

void examine_driver(const std::vector<std::filesystem::path>& directories,
                    std::vector<Finding>& findings) {
  const auto driver = cu::DriverApi::open(directories);
  if (!driver) {
    findings.push_back({"cuda driver", State::absent, driver.error().message,
                        "without it the model runs on the CPU"});
    return;
  }
  const int version = (*driver)->version();
  findings.push_back({"cuda driver", State::good,
                      fmt::format("{}, CUDA {}.{}", (*driver)->path().string(), version / 1000,
                                  version % 1000 / 10),
                      ""});
  try {
    const std::vector<cu::DeviceInfo> devices = cu::list_devices(**driver);
    for (const cu::DeviceInfo& device : devices)
      findings.push_back(describe(device));
    if (devices.size() > 1) findings.push_back(examine_peers(**driver, devices));
  } catch (const EngineError& error) {
    findings.push_back({"gpu", State::absent, error.error().message,
                        "see `nvidia-smi`; without a card the model runs on the CPU"});
  }
}

}  // namespace

std::vector<Finding> examine_gpus(const Environment& environment) {
  const auto directories = library_search_path(environment.library_dirs);

  std::vector<Finding> findings;
  examine_driver(directories, findings);
  if (const auto nvrtc = jit::find_nvrtc(directories)) {
    findings.push_back({"nvrtc", State::good,
                        fmt::format("{}, version {}", nvrtc->library.string(), nvrtc->version),
                        ""});
  } else {
    findings.push_back({"nvrtc", State::absent, nvrtc.error().message,
                        "without it only kernels that are in a cache can run; the CPU needs none"});
  }
  if (const auto nccl = nccl::NcclApi::open(directories)) {
    findings.push_back(
        {"nccl", State::good,
         fmt::format("{}, version {}", (*nccl)->path().string(), (*nccl)->version_text()), ""});
  } else {
    findings.push_back({"nccl", State::absent, nccl.error().message, "only several GPUs need it"});
  }
  return findings;
}

}  // namespace ingot
