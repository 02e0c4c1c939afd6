#include "runtime/base/shared_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <system_error>

namespace ingot {
namespace {

std::filesystem::path loaded_path(void* handle, const std::filesystem::path& asked) {
  const link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name[0] == '\0') {
    return asked;
  }
  return map->l_name;
}

/// The paths that exist, in the patterns' order, each once.
std::vector<std::filesystem::path> matching(const std::vector<std::filesystem::path>& patterns) {
  std::vector<std::filesystem::path> found;
  for (const auto& pattern : patterns) {
    glob_t matches{};
    if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) {
        std::filesystem::path path = matches.gl_pathv[i];
        if (std::find(found.begin(), found.end(), path) == found.end()) {
          found.push_back(std::move(path));
        }
      }
    }
    ::globfree(&matches);
  }
  return found;
}

}  // namespace

Result<SharedLibrary> SharedLibrary::open(const std::filesystem::path& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return fail(ErrorCode::not_found, fmt::format("opening {}: {}", path.string(),
                                                  reason != nullptr ? reason : "unknown reason"));
  }
  return SharedLibrary(handle, loaded_path(handle, path));
}

void* SharedLibrary::find(const char* symbol) const {
  return ::dlsym(handle_, symbol);
}

std::filesystem::path find_library_file(const LibrarySearch& search) {
  for (const auto& name : search.file_names) {
    for (const auto& directory : search.directories) {
      std::error_code ignored;  // an unreadable folder is a folder without the file
      if (std::filesystem::exists(directory / name, ignored)) {
        return std::filesystem::absolute(directory / name, ignored);
      }
    }
  }
  return {};
}

Result<SharedLibrary> open_library(const LibrarySearch& search) {
  std::string reasons;
  for (const auto& name : search.file_names) {
    for (const auto& directory : search.directories) {
      std::error_code ignored;
      if (!std::filesystem::exists(directory / name, ignored)) continue;
      auto library = SharedLibrary::open(directory / name);
      if (library) return library;
      reasons += "; " + library.error().message;
    }
    auto library = SharedLibrary::open(name);
    if (library) return library;
    reasons += "; " + library.error().message;
  }
  std::string folders;
  for (const auto& directory : search.directories) {
    folders += (folders.empty() ? "" : ":") + directory.string();
  }
  return fail(ErrorCode::not_found,
              fmt::format("{} not found in {} nor by the dynamic linker ({}); {}",
                          fmt::join(search.file_names, " / "),
                          folders.empty() ? "any given folder" : folders,
                          reasons.substr(reasons.empty() ? 0 : 2), search.remedy));
}

std::vector<std::filesystem::path> wheel_library_directories(const std::filesystem::path& prefix) {
  return matching({prefix / "lib/python3*/*-packages/nvidia/cu[0-9]*/lib",  // since CUDA 13
                   prefix / "lib/python3*/*-packages/nvidia/*/lib"});       // up to CUDA 12
}

std::vector<std::filesystem::path> usual_library_directories() {
  return matching({
      "/usr/local/cuda/lib64",
      "/usr/local/cuda-[0-9]*/lib64",
      "/usr/local/nvidia/lib64",  // driver mount of container runtimes
      "/usr/local/nvidia/lib",
      "/run/opengl-driver/lib",  // NixOS
      "/usr/lib/wsl/lib",
      "/opt/cuda/lib64",
      "/usr/local/lib/python3*/*-packages/nvidia/cu[0-9]*/lib",  // wheels since CUDA 13
      "/usr/local/lib/python3*/*-packages/nvidia/*/lib",         // wheels up to CUDA 12
      "/usr/lib/python3*/dist-packages/nvidia/*/lib",
  });
}

std::vector<std::filesystem::path> library_search_path(std::vector<std::filesystem::path> own) {
  for (auto& usual : usual_library_directories())
    own.push_back(std::move(usual));
  return own;
}

}  // namespace ingot
