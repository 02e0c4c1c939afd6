#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"
#include "src/executor/weight_layout.hpp"

namespace ingot::test {

/// Bytes at an address of a view.
using FetchWeights = std::function<std::vector<std::byte>(const void* address, std::size_t bytes)>;

/// Reads every element of a rank's weights back and holds it against the checkpoint, each where its
/// kernels look for it; shares of ranks by the rules of the design, section 7, written out here
/// again. Catch assertions.
void check_weights(const Checkpoint& checkpoint, const executor::WeightViews& views, int tp_rank,
                   int tp_size, const FetchWeights& fetch);

}  // namespace ingot::test
