#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "runtime/jit/nvrtc_api.hpp"

namespace ingot::test {

/// Folders for NVIDIA's libraries: INGOT_LIBRARY_PATH (colon-separated), then the usual ones.
std::vector<std::filesystem::path> library_directories();

/// The machine's NVRTC; otherwise null, after skip() said why.
std::shared_ptr<const jit::NvrtcApi> nvrtc_or_skip();

}  // namespace ingot::test
