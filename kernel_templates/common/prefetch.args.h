#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

// What a launch brings to the L2 for later ones: small weights, which nobody else asks for before
// they are waited for.
struct PrefetchList {
  static constexpr int kMost = 32;
  const void* at[kMost];  // 16-byte aligned
  u32 bytes[kMost];       // multiples of 16
  int count;              // 0: nothing
};

}  // namespace ingot::kernels
