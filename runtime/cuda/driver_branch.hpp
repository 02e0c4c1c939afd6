#pragma once

#include <string>
#include <string_view>

namespace ingot::cu {

/// The release branch of the driver, within which its code generation and clocks do not change
/// much: "580" of 580.65.06. Where the kernel module does not say its version (some containers and
/// virtual machines), the CUDA version that the driver serves: "cuda-13.0". "unknown" where neither
/// is known.
/// @param module_text   what /proc/driver/nvidia/version says; may be empty
/// @param cuda_version  of cuDriverGetVersion: 13000; 0 where it is not known
std::string driver_branch(std::string_view module_text, int cuda_version);

/// The text of /proc/driver/nvidia/version; empty where there is none.
std::string driver_module_text();

}  // namespace ingot::cu
