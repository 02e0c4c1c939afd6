#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

// When each launch's predecessors had finished, in order: a launch stamps when its wait returns.
struct LaunchTrace {
  static constexpr u32 kRoom = 1u << 16;
  u32 count;  // of stamps wanted; those past the room are dropped
  u32 unused;
  u64 ns[kRoom];
};

}  // namespace ingot::kernels
