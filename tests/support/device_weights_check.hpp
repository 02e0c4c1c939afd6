#pragma once

#include <cstddef>
#include <functional>
#include <string>
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

/// What DeviceWeights shows, in one.
executor::WeightViews views_of(const executor::DeviceWeights& weights);

/// Cases for any card that `context` is of, which must be current. Catch assertions.
/// Loads weight_model(`model`) onto it as one rank and checks all of it; afterwards the card's
/// memory is free again.
void check_device_loading(const cu::Context& context, const std::string& model, int tp_rank,
                          int tp_size);
/// Damage and a progress callback that throws end a loading, and leave no memory behind.
void check_device_refusals(const cu::Context& context);
/// Synthetic weights: memory is taken as predicted, and the last bytes of them are made.
void check_device_synthetic(const cu::Context& context, const ModelConfig& config,
                            const executor::WeightOptions& options);

}  // namespace ingot::test
