#pragma once

#include "src/cli/environment.hpp"
#include "src/cli/settings.hpp"

namespace ingot {

struct DoctorOptions {
  LayeredSettings settings;
  Environment environment;
  bool show_settings = false;  ///< --settings: print effective values and where they came from
  bool json = false;
};

/// `ingot doctor`: what of this machine ingot can use, what is wrong and what to do.
/// Returns 0 where ingot can run here (on the CPU at least), else 1.
int run_doctor(const DoctorOptions& options);

}  // namespace ingot
