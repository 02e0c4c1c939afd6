#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/cli/settings.hpp"

namespace ingot {

/// One thing that the doctor looked at.
struct Finding {
  enum class State {
    good,    ///< there, and usable
    absent,  ///< not there; ingot runs without it, with less
    bad,     ///< ingot cannot run as asked until it is mended
  };

  std::string name;  ///< "cpu", "cuda driver" …
  State state = State::good;
  std::string detail;  ///< what was found
  std::string advice;  ///< what to do; empty where all is well
};

/// Looks at the machine, and at the model where the settings name one.
/// @param library_dirs  folders for NVIDIA's libraries, before the usual ones
std::vector<Finding> examine(const Settings& settings,
                             const std::vector<std::filesystem::path>& library_dirs);

}  // namespace ingot
