#pragma once

#include <string>
#include <vector>

#include "src/cli/environment.hpp"
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

/// Looks at the machine, and at the model: the one that the settings name, else the built-in one.
std::vector<Finding> examine(const Settings& settings, const Environment& environment);

/// NVIDIA's side of the machine: driver, cards, peer access, NVRTC, NCCL.
std::vector<Finding> examine_gpus(const Environment& environment);

}  // namespace ingot
