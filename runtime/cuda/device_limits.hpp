#pragma once

#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/cuda/context.hpp"

namespace ingot::cu {

/// What a kernel variant may use. Legality of a candidate is a function of these alone, so that a
/// machine without a GPU decides as one with it.
struct DeviceLimits {
  int arch = 0;  ///< compute capability: 80, 90, 120 …
  int smem_per_block_bytes = 0;
  int smem_per_sm_bytes = 0;
  int registers_per_sm = 65536;
  int threads_per_sm = 0;
  int sm_count = 0;
  bool has_clusters = false;

  bool operator==(const DeviceLimits&) const = default;
};

DeviceLimits limits_of(const DeviceInfo& device);

/// Limits of the largest card of an architecture ("sm_90a"). One that is not in the table (tried by
/// hand with --arch) gets the most modest limits since sm_80. Error: invalid_argument for what is
/// no architecture's name.
[[nodiscard]] Result<DeviceLimits> limits_of_arch(std::string_view arch);

}  // namespace ingot::cu
