#include <fmt/format.h>

#include "runtime/base/shared_library.hpp"
#include "runtime/comm/nccl_api.hpp"
#include "runtime/comm/peer_check.hpp"
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

/// Which cards use each other's memory, and whether what they read and write there is right.
void examine_peers(std::shared_ptr<const cu::DriverApi> driver,
                   const std::vector<cu::DeviceInfo>& devices, std::vector<Finding>& findings) {
  std::vector<cu::Context> contexts;
  for (const cu::DeviceInfo& device : devices)
    contexts.push_back(cu::Context::retain(driver, device.ordinal));
  constexpr const char* kWithout =
      "tensor parallel goes through NCCL where cards cannot use each other's memory";
  std::size_t good = 0;
  std::vector<std::string> rows;
  std::vector<std::string> broken;
  for (const cu::Context& from : contexts) {
    std::string row = fmt::format("gpu {}:", from.device().ordinal);
    for (const cu::Context& to : contexts) {
      if (&from == &to) {
        row += " -";
        continue;
      }
      const auto works = check_peers(from, to);
      row += works ? " yes" : " no";
      good += works ? 1 : 0;
      if (!works) broken.push_back(works.error().message);
    }
    rows.push_back(std::move(row));
  }
  const std::size_t pairs = contexts.size() * (contexts.size() - 1);
  findings.push_back({"peer memory", good == pairs ? State::good : State::absent,
                      fmt::format("{} of {} ordered pairs read and write ({})", good, pairs,
                                  fmt::join(rows, "; ")),
                      good == pairs ? "" : kWithout});
  for (std::string& pair : broken)
    findings.push_back({"peer memory", State::absent, std::move(pair), kWithout});
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
    if (devices.size() > 1) examine_peers(*driver, devices, findings);
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
