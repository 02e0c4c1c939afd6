#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/emulator/device.hpp"

namespace ingot::test::emulator {

/// One variant of a kernel family, compiled for the emulator.
struct KernelVariant {
  std::string name;
  std::string family;                               ///< its stem
  std::vector<std::pair<std::string, int>> params;  ///< every parameter, with its value
  /// Runs one launch; `args` is the family's argument struct, with host pointers.
  void (*run)(const Launch& launch, const void* args) = nullptr;
};

/// Those that tests/kernel_templates/meson.build lists.
std::vector<KernelVariant> kernel_variants();

}  // namespace ingot::test::emulator
