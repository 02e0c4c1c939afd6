#pragma once

#include "src/engine/engine.hpp"

namespace ingot {

/// One warning where the engine met NaN while it ran; for the end of a command.
void report_numeric_faults(const Engine& engine);

}  // namespace ingot
