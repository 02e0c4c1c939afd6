#pragma once
// Included by common/launch.cuh when a step is traced. One thread of a launch notes the time; it
// costs that thread one atomic addition.
#include "common/launch_trace.args.h"

// Set by the host before the first launch.
extern "C" __device__ ingot::kernels::LaunchTrace* ingot_launch_trace;
extern "C" __device__ ingot::kernels::LaunchTrace* ingot_launch_trace = nullptr;

namespace ingot::kernels::launch_trace {

inline void stamp() {
  const bool first =
      (blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x | threadIdx.y | threadIdx.z) == 0;
  if (!first || ingot_launch_trace == nullptr) return;
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  const u32 at = atomicAdd(&ingot_launch_trace->count, 1u);
  if (at < LaunchTrace::kRoom) ingot_launch_trace->ns[at] = now;
}

}  // namespace ingot::kernels::launch_trace
