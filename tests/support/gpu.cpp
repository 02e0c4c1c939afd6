#include "tests/support/gpu.hpp"

#include <fmt/format.h>

#include "runtime/jit/arch.hpp"
#include "runtime/jit/nvrtc_compiler.hpp"
#include "tests/support/skip.hpp"

namespace ingot::test {

std::shared_ptr<const cu::DriverApi> driver_or_skip(int devices) {
  auto driver = cu::DriverApi::open(library_directories());
  if (!driver) {
    skip("no GPU: " + driver.error().message);
    return nullptr;
  }
  int count = 0;
  (*driver)->check((*driver)->cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (count < devices) {
    skip(fmt::format("needs {} GPU(s), the driver shows {}", devices, count));
    return nullptr;
  }
  return *driver;
}

jit::CompiledKernel compile_for(const cu::Context& context, const std::string& name,
                                const std::string& source) {
  const auto files = value_or_throw(jit::find_nvrtc(library_directories()));
  jit::NvrtcCompiler compiler(value_or_throw(jit::NvrtcApi::open(files)));
  const jit::CompileJob job{.name = name,
                            .arch = value_or_throw(jit::arch_of(context.device().compute_major,
                                                                context.device().compute_minor)),
                            .source = source,
                            .headers = {},
                            .options = {"-default-device", "--std=c++20", "--ptxas-options=-v"}};
  return value_or_throw(compiler.compile(job));
}

}  // namespace ingot::test
