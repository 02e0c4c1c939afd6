#pragma once

#include <string>

#include "src/checkpoint/model_config.hpp"

namespace ingot {

/// The published model whose shape this is ("DeepSeek-V4-Flash", "DeepSeek-V4-Pro",
/// "DeepSeek-V4-Flash-0731"), or "DeepSeek-V4, own sizes".
std::string model_flavour(const ModelConfig& config);

}  // namespace ingot
