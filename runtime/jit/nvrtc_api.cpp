#include "runtime/jit/nvrtc_api.hpp"

#include <fmt/format.h>

#include <system_error>

#include "runtime/base/build_id.hpp"
#include "runtime/base/shared_library.hpp"

namespace ingot::jit {
namespace {

constexpr const char* kRemedy =
    "install NVRTC 12 or 13 (package cuda-nvrtc-13-0 of NVIDIA's repository, or the Python wheel "
    "nvidia-cuda-nvrtc), or run with a kernel cache that already holds every kernel";
constexpr int kMajors[] = {13, 12};  // newest first

std::string library_name(int major) {
  return fmt::format("libnvrtc.so.{}", major);
}

std::string builtins_prefix(int major) {
  return fmt::format("libnvrtc-builtins.so.{}.", major);
}

/// libnvrtc-builtins.so.13.0 → "13.0"; the newest in the folder.
std::filesystem::path find_builtins(const std::filesystem::path& directory, int major) {
  const std::string prefix = builtins_prefix(major);
  std::filesystem::path best;
  int best_minor = -1;
  std::error_code ignored;  // an unreadable folder is a folder without the file
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const std::string minor = name.substr(prefix.size());
    if (minor.empty() || minor.size() > 3 ||
        minor.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    if (std::stoi(minor) > best_minor) {
      best_minor = std::stoi(minor);
      best = entry.path();
    }
  }
  return best;
}

Result<NvrtcFiles> describe(const std::filesystem::path& library,
                            const std::filesystem::path& builtins, int major) {
  NvrtcFiles files;
  files.library = library;
  files.builtins = builtins;
  files.version = fmt::format("{}.{}", major,
                              builtins.filename().string().substr(builtins_prefix(major).size()));
  auto library_build = build_id_of(library);
  if (!library_build) return tl::unexpected(library_build.error());
  auto builtins_build = build_id_of(builtins);
  if (!builtins_build) return tl::unexpected(builtins_build.error());
  files.build = fmt::format("{}+{}", *library_build, *builtins_build);
  return files;
}

}  // namespace

Result<NvrtcFiles> find_nvrtc(const std::vector<std::filesystem::path>& directories,
                              LinkerSearch linker) {
  std::string without_builtins;
  std::string folders;
  for (const auto& directory : directories) {
    folders += (folders.empty() ? "" : ":") + directory.string();
  }
  for (const int major : kMajors) {
    for (const auto& directory : directories) {
      std::error_code ignored;
      const auto library = std::filesystem::absolute(directory / library_name(major), ignored);
      if (!std::filesystem::exists(library, ignored)) continue;
      const auto builtins = find_builtins(library.parent_path(), major);
      if (!builtins.empty()) return describe(library, builtins, major);
      without_builtins += (without_builtins.empty() ? "" : ", ") + library.string();
    }
    if (linker == LinkerSearch::no) continue;
    // Not in a given folder: let the dynamic linker look, then take the folder it found.
    const auto opened = SharedLibrary::open(library_name(major));
    if (!opened) continue;
    const auto builtins = find_builtins(opened->path().parent_path(), major);
    if (!builtins.empty()) return describe(opened->path(), builtins, major);
    without_builtins += (without_builtins.empty() ? "" : ", ") + opened->path().string();
  }
  if (!without_builtins.empty()) {
    return fail(ErrorCode::not_found,
                fmt::format("NVRTC at {} has no libnvrtc-builtins.so beside it; {}",
                            without_builtins, kRemedy));
  }
  return fail(ErrorCode::not_found,
              fmt::format("NVRTC ({} or {}) is neither in {} nor known to the dynamic linker; {}",
                          library_name(kMajors[0]), library_name(kMajors[1]),
                          folders.empty() ? "any given folder" : folders, kRemedy));
}

Result<std::shared_ptr<const NvrtcApi>> NvrtcApi::open(const NvrtcFiles& files) {
  if (const auto builtins = SharedLibrary::open(files.builtins); !builtins) {
    return tl::unexpected(builtins.error());
  }
  const auto library = SharedLibrary::open(files.library);
  if (!library) return tl::unexpected(library.error());

  auto api = std::make_shared<NvrtcApi>();
  api->files_ = files;
  const auto bind = [&](const char* symbol, auto& target) {
    target = reinterpret_cast<std::decay_t<decltype(target)>>(library->find(symbol));
    return target != nullptr;
  };
  const char* missing = nullptr;
  if (!bind("nvrtcGetErrorString", api->nvrtcGetErrorString)) missing = "nvrtcGetErrorString";
#define NVRTC_FUNCTION(symbol, parameters) \
  if (!bind(#symbol, api->symbol)) missing = #symbol;
#include "runtime/jit/nvrtc_functions.def"
#undef NVRTC_FUNCTION
  if (missing != nullptr) {
    return fail(ErrorCode::not_found,
                fmt::format("{} has no {}; {}", files.library.string(), missing, kRemedy));
  }
  return api;
}

std::vector<int> NvrtcApi::supported_archs() const {
  int count = 0;
  if (nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count <= 0) return {};
  std::vector<int> archs(static_cast<std::size_t>(count));
  if (nvrtcGetSupportedArchs(archs.data()) != NVRTC_SUCCESS) return {};
  return archs;
}

}  // namespace ingot::jit
