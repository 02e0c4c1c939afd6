#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "src/cli/kernel_cache.hpp"
#include "tuner/tuning_key.hpp"

namespace ingot {

/// A kind of card: what kernels may use, and what a tuning is keyed by.
struct Card {
  cu::DeviceLimits limits;
  TuningDevice device;
};

/// Error: unsupported for an architecture that is not known.
[[nodiscard]] Result<Card> card_of(const cu::DriverApi& driver, const cu::DeviceInfo& device);

/// The cards of this machine, those that are alike once.
/// Errors: not_found where there is no driver, unsupported for an architecture that is not known.
/// Throws EngineError(cuda) where the driver shows none.
[[nodiscard]] Result<std::vector<Card>> local_cards(const KernelCacheOptions& options);

/// Cards of an architecture and TP size that the records tell of. Their limits are those of the
/// architecture, with their own number of multiprocessors.
/// Error: those of cu::limits_of_arch.
[[nodiscard]] Result<std::vector<Card>> recorded_cards(const TuningStore& records,
                                                       const std::string& arch, int tp_size);

}  // namespace ingot
