#pragma once

#include "src/engine/engine.hpp"

namespace ingot {

/// The last line of `--stats`, JSON on standard error: steps, how many of them came from graphs,
/// and kernels that had to be compiled. Nothing for an engine without kernels.
void print_engine_counts(const Engine& engine);

}  // namespace ingot
