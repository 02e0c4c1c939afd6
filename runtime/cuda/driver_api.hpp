#pragma once

#include <filesystem>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/cuda/driver_types.hpp"

namespace ingot::cu {

/// libcuda's entry points, by their exported names. Opened once by whoever starts the program and
/// handed on; immutable, so any thread may call. Everything in runtime/cuda keeps a pointer to it:
/// it must outlive them.
class DriverApi {
 public:
  /// Opens libcuda.so.1 (`directories` first, then the dynamic linker's search) and initialises it.
  /// Error: not_found (no library, or one that lacks an entry point; names file and package),
  /// cuda (the driver refuses to start: no device, version mismatch).
  [[nodiscard]] static Result<std::shared_ptr<const DriverApi>> open(
      const std::vector<std::filesystem::path>& directories);

  const std::filesystem::path& path() const { return path_; }
  /// 13000 for CUDA 13.0: the newest CUDA that the driver knows.
  int version() const { return version_; }

  /// Throws EngineError(cuda) unless `result` is CUDA_SUCCESS. `call` names the entry point.
  void check(CUresult result, std::string_view call,
             std::source_location where = std::source_location::current()) const;
  /// "CUDA_ERROR_INVALID_VALUE: invalid argument".
  std::string describe(CUresult result) const;

#define DRIVER_FUNCTION(symbol, parameters) CUresult(*symbol) parameters = nullptr;
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION

 private:
  std::filesystem::path path_;
  int version_ = 0;
};

}  // namespace ingot::cu
