#include "tests/support/gpu.hpp"

#include <fmt/format.h>

#include "kernel_templates/family.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/compile_job.hpp"
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

namespace {

std::string arch_of(const cu::Context& context) {
  return value_or_throw(
      jit::arch_of(context.device().compute_major, context.device().compute_minor));
}

jit::NvrtcCompiler open_compiler() {
  return jit::NvrtcCompiler(
      value_or_throw(jit::NvrtcApi::open(value_or_throw(jit::find_nvrtc(library_directories())))));
}

}  // namespace

jit::CompiledKernel compile_for(const cu::Context& context, const std::string& name,
                                const std::string& source) {
  const jit::CompileJob job{.name = name,
                            .arch = arch_of(context),
                            .source = source,
                            .headers = {},
                            .options = jit::canonical_options()};
  return value_or_throw(open_compiler().compile(job));
}

jit::Kernel load_variant(const cu::Context& context, const jit::Variant& variant) {
  const auto bundle =
      value_or_throw(kernels::embedded_templates().bundle(jit::template_name(variant.family)));
  const auto compiled =
      value_or_throw(open_compiler().compile(jit::make_job(bundle, variant, arch_of(context))));
  return jit::Kernel::load(context, compiled.cubin, variant.family);
}

}  // namespace ingot::test
