#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot::jit {

// The part of <nvrtc.h> that we use; nvrtc_api_check.cpp compares it with NVIDIA's header.
using nvrtcProgram = struct _nvrtcProgram*;

enum nvrtcResult : int {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
};

/// Where one NVRTC lies on disk and which one it is. Found without opening the library (it is
/// 100 MB), so that a process that compiles nothing never maps it.
struct NvrtcFiles {
  std::filesystem::path library;   ///< …/libnvrtc.so.13
  std::filesystem::path builtins;  ///< …/libnvrtc-builtins.so.13.0, beside it
  std::string version;             ///< "13.0"
  /// GNU build ids of both files (or a digest of a file that carries none). Two NVRTCs with equal
  /// version and build compile alike.
  std::string build;
};

/// Whether the dynamic linker is asked too, after the given folders.
enum class LinkerSearch { yes, no };

/// Looks for libnvrtc.so.13, then .12, with its builtins beside it: in `directories`, then where
/// the dynamic linker finds one. Error: not_found, naming files, folders and package; a library
/// whose builtins are missing is an error that says so, if no other folder has both.
[[nodiscard]] Result<NvrtcFiles> find_nvrtc(const std::vector<std::filesystem::path>& directories,
                                            LinkerSearch linker = LinkerSearch::yes);

/// NVRTC's entry points, by their exported names. Opened once and handed on; immutable.
class NvrtcApi {
 public:
  /// Opens the builtins by absolute path first, then the library: NVRTC looks its builtins up by
  /// bare name, and finds the one that is already open. Error: not_found.
  [[nodiscard]] static Result<std::shared_ptr<const NvrtcApi>> open(const NvrtcFiles& files);

  const NvrtcFiles& files() const { return files_; }
  /// Compute capabilities it compiles for: 80, 90, 100 …; ascending.
  std::vector<int> supported_archs() const;

  const char* (*nvrtcGetErrorString)(nvrtcResult result) = nullptr;
#define NVRTC_FUNCTION(symbol, parameters) nvrtcResult(*symbol) parameters = nullptr;
#include "runtime/jit/nvrtc_functions.def"
#undef NVRTC_FUNCTION

 private:
  NvrtcFiles files_;
};

}  // namespace ingot::jit
