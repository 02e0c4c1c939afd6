#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ingot {

/// What the program takes from environment variables, and where it lies itself. Read once, in
/// options.cpp.
struct Environment {
  std::filesystem::path cache_home;  ///< XDG_CACHE_HOME, else HOME/.cache; empty if neither is set
  std::string cache_home_from;       ///< the variable that gave it
  std::filesystem::path home;        ///< HOME; what `~` stands for
  /// XDG_STATE_HOME, else HOME/.local/state where there is such a home; empty if there is neither.
  std::filesystem::path state_home;
  /// Folders for NVIDIA's libraries: INGOT_LIBRARY_PATH, then those that CUDA_HOME, CUDA_PATH,
  /// CONDA_PREFIX and VIRTUAL_ENV (wheels) imply.
  std::vector<std::filesystem::path> library_dirs;
  std::filesystem::path program;  ///< this executable, links resolved; empty if not known
  std::string editor;             ///< VISUAL or EDITOR
  bool no_color = false;          ///< NO_COLOR is set and not empty
  bool dumb_terminal = false;     ///< TERM is unset or "dumb"
};

}  // namespace ingot
