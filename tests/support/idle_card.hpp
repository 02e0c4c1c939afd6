#pragma once

#include <memory>

#include "runtime/cuda/driver_api.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "tests/support/host_card.hpp"

namespace ingot::test {

/// A card on which launches do nothing, but that the sampler always chooses one token: for what a
/// host does around them. It takes everything for a kernel that idle_kernels() "compiles". What its
/// driver allocates is not counted.
class IdleCard {
 public:
  static constexpr int kToken = 99;

  explicit IdleCard(std::uint64_t memory_bytes);

  std::shared_ptr<const cu::DriverApi> driver() const { return driver_; }
  /// How often anybody waited for a stream.
  int waits() const;

 private:
  HostCard card_;
  std::shared_ptr<const cu::DriverApi> driver_;
};

/// Kernels of all families, of no code.
std::shared_ptr<jit::KernelStore> idle_kernels();

}  // namespace ingot::test
