#include "runtime/cuda/driver_api.hpp"

#include <fmt/format.h>

#include "runtime/base/shared_library.hpp"

namespace ingot::cu {

Result<std::shared_ptr<const DriverApi>> DriverApi::open(
    const std::vector<std::filesystem::path>& directories) {
  const auto library = open_library(
      {.file_names = {"libcuda.so.1"},
       .directories = directories,
       .remedy = "install the NVIDIA driver (Debian: nvidia-driver with libcuda1; in a container "
                 "start it with the NVIDIA runtime)"});
  if (!library) return tl::unexpected(library.error());

  auto api = std::make_shared<DriverApi>();
  api->path_ = library->path();
#define DRIVER_FUNCTION(symbol, parameters)                                                      \
  api->symbol = reinterpret_cast<CUresult(*) parameters>(library->find(#symbol));                \
  if (api->symbol == nullptr) {                                                                  \
    return fail(ErrorCode::not_found,                                                            \
                fmt::format("{} has no {}: the driver is too old; install version 550 or newer", \
                            library->path().string(), #symbol));                                 \
  }
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION

  if (const CUresult result = api->cuInit(0); result != CUDA_SUCCESS) {
    return fail(ErrorCode::cuda, fmt::format("starting {}: cuInit failed: {}", api->path_.string(),
                                             api->describe(result)));
  }
  if (const CUresult result = api->cuDriverGetVersion(&api->version_); result != CUDA_SUCCESS) {
    return fail(ErrorCode::cuda, fmt::format("cuDriverGetVersion: {}", api->describe(result)));
  }
  return api;
}

std::string DriverApi::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return fmt::format("unknown driver error {}", static_cast<int>(result));
  }
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return fmt::format("{}: {}", name, text);
}

void DriverApi::check(CUresult result, std::string_view call, std::source_location where) const {
  if (result == CUDA_SUCCESS) return;
  throw EngineError(ErrorCode::cuda, fmt::format("{} failed: {}", call, describe(result)), where);
}

}  // namespace ingot::cu
