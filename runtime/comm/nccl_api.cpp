#include "runtime/comm/nccl_api.hpp"

#include <fmt/format.h>

#include "runtime/base/shared_library.hpp"

namespace ingot::nccl {
namespace {

/// Sets `target` to the symbol's address; false when the library lacks it.
template <class Function>
bool bind(const SharedLibrary& library, const char* symbol, Function& target) {
  target = reinterpret_cast<Function>(library.find(symbol));
  return target != nullptr;
}

}  // namespace

Result<std::shared_ptr<const NcclApi>> NcclApi::open(
    const std::vector<std::filesystem::path>& directories) {
  const auto library = open_library(
      {.file_names = {"libnccl.so.2"},
       .directories = directories,
       .remedy = "install NCCL 2 (package libnccl2 of NVIDIA's repository, or the Python wheel "
                 "nvidia-nccl-cu13), or run with a tensor-parallel size of 1"});
  if (!library) return tl::unexpected(library.error());

  auto api = std::make_shared<NcclApi>();
  api->path_ = library->path();
  const char* missing = nullptr;
  if (!bind(*library, "ncclGetErrorString", api->ncclGetErrorString)) {
    missing = "ncclGetErrorString";
  }
  if (!bind(*library, "ncclGetLastError", api->ncclGetLastError)) missing = "ncclGetLastError";
#define NCCL_FUNCTION(symbol, parameters) \
  if (!bind(*library, #symbol, api->symbol)) missing = #symbol;
#include "runtime/comm/nccl_functions.def"
#undef NCCL_FUNCTION
  if (missing != nullptr) {
    return fail(ErrorCode::not_found,
                fmt::format("{} has no {}: it is too old; install NCCL 2.20 or newer",
                            api->path_.string(), missing));
  }
  if (api->ncclGetVersion(&api->version_) != ncclSuccess) {
    return fail(ErrorCode::nccl, fmt::format("{}: ncclGetVersion failed", api->path_.string()));
  }
  return api;
}

std::string NcclApi::version_text() const {
  return fmt::format("{}.{}.{}", version_ / 10000, version_ / 100 % 100, version_ % 100);
}

void NcclApi::check(ncclResult_t result, std::string_view call, std::source_location where) const {
  if (result == ncclSuccess) return;
  std::string_view detail = ncclGetLastError(nullptr);
  while (!detail.empty() && detail.back() == '\n')
    detail.remove_suffix(1);
  throw EngineError(ErrorCode::nccl,
                    fmt::format("{} failed: {}{}{}", call, ncclGetErrorString(result),
                                detail.empty() ? "" : ": ", detail),
                    where);
}

}  // namespace ingot::nccl
