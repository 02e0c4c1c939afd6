#include "tests/support/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include "kernel_templates/family.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/compile_job.hpp"
#include "runtime/jit/compile_pool.hpp"
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

/// INGOT_TEST_NVRTC_OPTIONS, split at blanks: what tests compile kernels with besides.
std::vector<std::string> more_nvrtc_options() {
  std::vector<std::string> options;
  const char* const value = std::getenv("INGOT_TEST_NVRTC_OPTIONS");
  std::istringstream words(value != nullptr ? value : "");
  for (std::string word; words >> word;)
    options.push_back(word);
  return options;
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

std::vector<jit::Kernel> load_variants(const cu::Context& context,
                                       const std::vector<jit::Variant>& variants) {
  const auto tree = kernels::embedded_templates();
  const std::string arch = arch_of(context);
  const auto files = value_or_throw(jit::find_nvrtc(library_directories()));
  auto pool = jit::CompilePool::with_nvrtc(
      files, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  std::vector<Result<jit::CompiledKernel>> compiled(variants.size(),
                                                    fail(ErrorCode::io, "not compiled"));
  std::atomic<std::size_t> next = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < pool.jobs(); ++i) {
      threads.emplace_back([&] {
        for (std::size_t at = next++; at < variants.size(); at = next++) {
          const auto bundle = tree.bundle(jit::template_name(variants[at].family));
          if (!bundle) {
            compiled[at] = tl::unexpected(bundle.error());
            continue;
          }
          auto job = jit::make_job(*bundle, variants[at], arch);
          const auto more = more_nvrtc_options();
          job.options.insert(job.options.end(), more.begin(), more.end());
          compiled[at] = pool.compile(job);
        }
      });
    }
  }
  std::vector<jit::Kernel> kernels;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    kernels.push_back(jit::Kernel::load(context, value_or_throw(std::move(compiled[i])).cubin,
                                        variants[i].family));
  }
  return kernels;
}

jit::Kernel load_variant(const cu::Context& context, const jit::Variant& variant) {
  return load_variants(context, {variant}).front();
}

}  // namespace ingot::test
