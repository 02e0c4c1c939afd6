#pragma once

#include "src/weights/synth.hpp"

namespace ingot {

/// `ingot synth`: writes a synthetic checkpoint, with progress on standard error.
/// Returns 0. Throws EngineError.
int run_synth(const SynthOptions& options);

}  // namespace ingot
