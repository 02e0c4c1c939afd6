#pragma once

#include <filesystem>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/comm/nccl_types.hpp"

namespace ingot::nccl {

/// libnccl's entry points, by their exported names. Opened once and handed on; immutable.
class NcclApi {
 public:
  /// Opens libnccl.so.2 (`directories` first, then the dynamic linker's search).
  /// Error: not_found, naming the file and the package.
  [[nodiscard]] static Result<std::shared_ptr<const NcclApi>> open(
      const std::vector<std::filesystem::path>& directories);

  const std::filesystem::path& path() const { return path_; }
  /// 22809 for 2.28.9.
  int version() const { return version_; }
  std::string version_text() const;

  /// Throws EngineError(nccl) unless `result` is ncclSuccess.
  void check(ncclResult_t result, std::string_view call,
             std::source_location where = std::source_location::current()) const;

  const char* (*ncclGetErrorString)(ncclResult_t result) = nullptr;
  /// The last error of any communicator, in words; `comm` may be null.
  const char* (*ncclGetLastError)(ncclComm_t comm) = nullptr;
#define NCCL_FUNCTION(symbol, parameters) ncclResult_t(*symbol) parameters = nullptr;
#include "runtime/comm/nccl_functions.def"
#undef NCCL_FUNCTION

 private:
  std::filesystem::path path_;
  int version_ = 0;
};

}  // namespace ingot::nccl
