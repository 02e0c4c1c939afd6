#pragma once

#include <cstdint>
#include <memory>

#include "runtime/cuda/driver_api.hpp"

namespace ingot::test {

/// A driver with one card whose memory is the host's: enough of one to allocate, copy, launch,
/// record graphs and wait. Copies happen when something waits for them, as late as a card may do
/// them. One at a time in a program.
class HostCard {
 public:
  /// Runs a kernel: what the shared object of its module calls "run_on_emulator", with its
  /// arguments. Kernels that are recorded need "arguments_bytes" there too.
  using Run = void (*)(const cu::CUlaunchConfig& config, void* kernel, const void* arguments);

  /// @param run  null: the card launches nothing
  explicit HostCard(std::uint64_t memory_bytes, int multiprocessors = 9, Run run = nullptr);
  HostCard(const HostCard&) = delete;
  HostCard& operator=(const HostCard&) = delete;
  ~HostCard();

  std::shared_ptr<const cu::DriverApi> driver() const { return driver_; }
  /// Objects of any kind that were made and not destroyed.
  int live_objects() const;
  std::uint64_t free_bytes() const;

 private:
  std::shared_ptr<const cu::DriverApi> driver_;
};

}  // namespace ingot::test
