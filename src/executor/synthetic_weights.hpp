#pragma once

#include "src/executor/weight_layout.hpp"
#include "src/executor/weight_store.hpp"

namespace ingot::executor {

/// Fills everything that is placed with random weights of the magnitudes that synthetic checkpoints
/// have (src/weights/synth_values). Blocks of a few MiB are made on the host, one for each kind and
/// magnitude, and repeated inside the store. Throws EngineError(cuda).
void fill_synthetic(const WeightPlacement& placement, WeightStore& store);

}  // namespace ingot::executor
