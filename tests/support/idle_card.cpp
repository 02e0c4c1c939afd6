#include "tests/support/idle_card.hpp"

#include <atomic>
#include <string_view>

#include "kernel_templates/family.hpp"
#include "kernel_templates/sample_tokens.args.h"
#include "tests/support/counted_new.hpp"

namespace ingot::test {
namespace {

using namespace cu;

/// Stands in front of one of the driver's functions.
template <auto Function>
struct Uncounted;
template <class... Args, CUresult (*DriverApi::*Function)(Args...)>
struct Uncounted<Function> {
  static inline CUresult (*behind)(Args...) = nullptr;
  static CUresult call(Args... args) {
    const UncountedNew uncounted;
    return behind(args...);
  }
  static void put(DriverApi& api) {
    behind = api.*Function;
    if (behind != nullptr) api.*Function = call;
  }
};

char g_any, g_sampler;  // what functions and modules are called by
std::atomic<int> g_waits = 0;
CUresult (*g_wait)(CUstream) = nullptr;

CUresult launch(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
  if (function != reinterpret_cast<CUfunction>(&g_sampler)) return CUDA_SUCCESS;
  const auto& args = *static_cast<const kernels::SampleTokensArgs*>(arguments[0]);
  for (unsigned row = 0; row < config->gridDimY; ++row)
    args.results[row].token = IdleCard::kToken;
  return CUDA_SUCCESS;
}

class IdleCompiler final : public jit::Compiler {
 public:
  jit::CompilerIdentity identity() const override { return {"0.0", "idle"}; }
  Result<jit::CompiledKernel> compile(const jit::CompileJob&) override {
    jit::CompiledKernel kernel;
    kernel.cubin.resize(64);
    return kernel;
  }
};

}  // namespace

IdleCard::IdleCard(std::uint64_t memory_bytes) : card_(memory_bytes) {
  auto api = std::make_shared<DriverApi>(*card_.driver());
  api->cuModuleLoadData = [](CUmodule* module, const void*) {
    *module = reinterpret_cast<CUmodule>(&g_any);
    return CUDA_SUCCESS;
  };
  api->cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
  api->cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* symbol) {
    const bool samples = symbol == std::string_view("sample_tokens");
    *function = reinterpret_cast<CUfunction>(samples ? &g_sampler : &g_any);
    return CUDA_SUCCESS;
  };
  api->cuLaunchKernelEx = launch;
  g_waits = 0;
  g_wait = api->cuStreamSynchronize;
  api->cuStreamSynchronize = [](CUstream stream) {
    ++g_waits;
    return g_wait(stream);
  };
#define DRIVER_FUNCTION(symbol, parameters) Uncounted<&DriverApi::symbol>::put(*api);
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION
  driver_ = std::move(api);
}

int IdleCard::waits() const {
  return g_waits;
}

std::shared_ptr<jit::KernelStore> idle_kernels() {
  return std::make_shared<jit::KernelStore>(
      kernels::embedded_templates(), std::shared_ptr<jit::Compiler>(new IdleCompiler),
      jit::KernelStore::Options{.directories = {}, .frozen = false});
}

}  // namespace ingot::test
