#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot::jit {

/// One row of the table from compute capability to the architecture that kernels are compiled for.
struct Arch {
  int compute_major = 0;
  int compute_minor = 0;
  std::string_view name;  ///< "sm_90a": with the features of exactly this chip where it has such
};

/// Every architecture that we compile for, ascending.
std::span<const Arch> known_archs();

/// Error: unsupported for a compute capability that is not in the table; the message says how to
/// try it anyway.
[[nodiscard]] Result<std::string> arch_of(int compute_major, int compute_minor);

/// Whether a cubin for `arch` runs on the device: the same major with a minor that is not newer,
/// or, for the names ending in "a", the same chip.
bool runs_on(std::string_view arch, int compute_major, int compute_minor);

/// "sm_90a" → 90, "sm_103a" → 103; nullopt for what is no architecture name.
std::optional<int> arch_number(std::string_view arch);

/// Checks a name that a user gave: sm_NN, sm_NNa or sm_NNf. Error: invalid_argument with the names
/// that are known.
[[nodiscard]] Result<std::string> parse_arch(std::string_view text);

}  // namespace ingot::jit
