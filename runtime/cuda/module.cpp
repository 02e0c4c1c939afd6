#include "runtime/cuda/module.hpp"

#include <fmt/format.h>

namespace ingot::cu {

Module Module::load(const Context& context, std::span<const std::byte> cubin,
                    const std::string& name) {
  const DriverApi& driver = context.driver();
  CUmodule module = nullptr;
  const CUresult result = driver.cuModuleLoadData(&module, cubin.data());
  if (result != CUDA_SUCCESS) {
    throw EngineError(ErrorCode::cuda,
                      fmt::format("loading the kernel {} on {} (sm_{}{}): {}", name,
                                  context.device().name, context.device().compute_major,
                                  context.device().compute_minor, driver.describe(result)));
  }
  return Module({module, &driver}, name);
}

CUfunction Module::function(const std::string& symbol) const {
  CUfunction function = nullptr;
  const CUresult result =
      driver().cuModuleGetFunction(&function, handle_.get().raw, symbol.c_str());
  if (result != CUDA_SUCCESS) {
    throw EngineError(ErrorCode::not_found, fmt::format("kernel {} has no function {}: {}", name_,
                                                        symbol, driver().describe(result)));
  }
  return function;
}

std::optional<CUdeviceptr> Module::global(const std::string& symbol) const {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  const CUresult result =
      driver().cuModuleGetGlobal_v2(&address, &bytes, handle_.get().raw, symbol.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) return std::nullopt;
  driver().check(result, "cuModuleGetGlobal");
  return address;
}

}  // namespace ingot::cu
