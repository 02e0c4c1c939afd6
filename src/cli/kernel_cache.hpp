#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "runtime/jit/cubin_cache.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "runtime/jit/nvrtc_api.hpp"
#include "tuner/tuning_store.hpp"

namespace ingot {

/// What the commands need to know to open the kernel cache.
struct KernelCacheOptions {
  /// Cache folders in order of look-up; the first is written. Kernels lie in "kernels" of each,
  /// tuning records in "tuning".
  std::vector<std::filesystem::path> cache_dirs;
  /// Folders for NVIDIA's libraries, before the usual ones.
  std::vector<std::filesystem::path> library_dirs;
  /// Read templates from here instead of those built in; for work on templates.
  std::filesystem::path template_dir;
  bool frozen = false;
  bool traced = false;  ///< every kernel stamps when it begins, for executor::StepTrace
};

/// The kernel folders of the options.
std::vector<jit::CubinCache> kernel_layers(const KernelCacheOptions& options);

/// The tuning folders of the options.
std::vector<TuningCache> tuning_layers(const KernelCacheOptions& options);

/// The tuning records. With --frozen, and where there is no NVRTC, another compiler's serve too.
std::unique_ptr<TuningStore> open_tuning_store(const KernelCacheOptions& options);

/// NVRTC as the program looks for it. Error: not_found.
[[nodiscard]] Result<jit::NvrtcFiles> find_nvrtc(const KernelCacheOptions& options);

/// The kernel store with NVRTC in `jobs` child processes; without NVRTC it serves what is cached.
/// Error: what reading --template-dir reports.
[[nodiscard]] Result<std::unique_ptr<jit::KernelStore>> open_kernel_store(
    const KernelCacheOptions& options, int jobs);

}  // namespace ingot
