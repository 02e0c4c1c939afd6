#pragma once

#include <memory>
#include <vector>

#include "src/executor/device_engine.hpp"
#include "tests/src/reference/synthetic_model.hpp"
#include "tests/support/emulator/emulated_kernels.hpp"

namespace ingot::test {

/// The device engine on cards whose kernels run on the emulator.
/// @param drivers  of each tensor parallel rank; they share the card
std::unique_ptr<DeviceEngine> emulated_engine(
    const std::vector<std::shared_ptr<const cu::DriverApi>>& drivers, const Checkpoint& checkpoint,
    int peer_limit_ms = 600'000, int max_sequences = 3);

}  // namespace ingot::test
