#include "src/executor/step_trace.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "kernel_templates/common/launch_trace.args.h"
#include "runtime/base/error.hpp"

namespace ingot::executor {
namespace {

constexpr std::string_view kLaunchHeader = "common/launch.cuh";
constexpr const char* kSymbol = "ingot_launch_trace";

}  // namespace

jit::SourceTree traced_templates(const jit::SourceTree& templates) {
  std::vector<jit::SourceFile> files;
  for (const std::string& name : templates.names()) {
    std::string text = *templates.find(name);
    if (name == kLaunchHeader) text = "#define INGOT_TRACE\n" + text;
    files.push_back({.name = name, .text = std::move(text)});
  }
  return jit::SourceTree(std::move(files));
}

StepTrace::StepTrace(const cu::Context& context, const cu::Stream& stream)
    : stream_(stream), memory_(cu::DeviceBuffer::allocate(context, sizeof(kernels::LaunchTrace))) {
  clear();
}

StepTrace::~StepTrace() {
  try {
    stream_.synchronize();
    point_at(0);
  } catch (const EngineError&) {
    // The device is lost, and with it all kernels.
  }
}

void StepTrace::point_at(cu::CUdeviceptr address) const {
  const cu::DriverApi& driver = stream_.driver();
  for (const cu::CUdeviceptr place : places_) {
    driver.check(driver.cuMemcpyHtoDAsync_v2(place, &address, sizeof(address), stream_.raw()),
                 "cuMemcpyHtoDAsync (of a kernel's trace)");
  }
  stream_.synchronize();
}

bool StepTrace::attach(const StepProgram& program) {
  std::set<cu::CUdeviceptr> places, beside;
  std::vector<cu::CUdeviceptr> place_of;
  for (const StepLaunch& launch : program.launches()) {
    if (launch.kernel == nullptr) return false;  // NCCL's
    const auto place = launch.kernel->kernel.global(kSymbol);
    if (!place) return false;
    place_of.push_back(*place);
    (launch.beside ? beside : places).insert(*place);
  }
  for (const cu::CUdeviceptr place : beside)
    places.erase(place);
  launches_.clear();
  for (std::size_t i = 0; i < place_of.size(); ++i)
    if (places.contains(place_of[i])) launches_.push_back(i);
  places_.assign(places.begin(), places.end());
  point_at(memory_.address());
  return true;
}

void StepTrace::clear() {
  memory_.fill_bytes(stream_, 0);
  stream_.synchronize();
}

std::vector<double> StepTrace::read() const {
  const std::size_t launches = launches_.size();
  std::vector<std::byte> bytes(memory_.bytes());
  memory_.copy_to_host(stream_, bytes);
  stream_.synchronize();
  const auto& trace = *reinterpret_cast<const kernels::LaunchTrace*>(bytes.data());
  if (launches == 0 || trace.count == 0 || trace.count % launches != 0 ||
      trace.count > kernels::LaunchTrace::kRoom) {
    return {};
  }
  const std::size_t steps = trace.count / launches;
  std::vector<double> mean(launches - 1);
  for (std::size_t step = 0; step < steps; ++step) {
    const kernels::u64* at = trace.ns + step * launches;
    for (std::size_t i = 0; i + 1 < launches; ++i)
      mean[i] += static_cast<double>(at[i + 1] - at[i]) / 1e3 / static_cast<double>(steps);
  }
  return mean;
}

}  // namespace ingot::executor
