#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// A shared object opened at run time; closed never: NVIDIA's libraries keep threads and exit
/// handlers, so unloading them is not safe. Copies name the same library.
class SharedLibrary {
 public:
  /// Opens `path`: an absolute path, or a bare file name that the dynamic linker searches for.
  /// Error: not_found with the linker's words.
  [[nodiscard]] static Result<SharedLibrary> open(const std::filesystem::path& path);

  /// The file that `path` turned out to be.
  const std::filesystem::path& path() const { return path_; }
  /// The symbol's address, or nullptr.
  void* find(const char* symbol) const;

 private:
  SharedLibrary(void* handle, std::filesystem::path path)
      : handle_(handle), path_(std::move(path)) {}

  void* handle_;
  std::filesystem::path path_;
};

/// How a library is looked for and what to tell the user who lacks it.
struct LibrarySearch {
  std::vector<std::string> file_names;               ///< newest first: "libnvrtc.so.13"
  std::vector<std::filesystem::path> directories{};  ///< tried first, in this order
  std::string remedy;                                ///< "install the package …"
};

/// The first file that opens: every directory with every name, then every bare name by the dynamic
/// linker's own search. Error: not_found naming the files, the folders and the remedy.
[[nodiscard]] Result<SharedLibrary> open_library(const LibrarySearch& search);

/// The first of `file_names` that exists in one of `directories`, as an absolute path; empty if
/// there is none.
std::filesystem::path find_library_file(const LibrarySearch& search);

/// Folders where NVIDIA's libraries lie without the dynamic linker knowing: the CUDA toolkit's, the
/// driver mounts of container runtimes, and Python wheels' under the system interpreters.
/// Only those that exist, in a fixed order.
std::vector<std::filesystem::path> usual_library_directories();

/// `own`, then the usual ones: where to look, in order.
std::vector<std::filesystem::path> library_search_path(std::vector<std::filesystem::path> own);

/// The same for NVIDIA's Python wheels under one installation prefix (a virtual environment).
std::vector<std::filesystem::path> wheel_library_directories(const std::filesystem::path& prefix);

}  // namespace ingot
