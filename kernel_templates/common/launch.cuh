#pragma once
// Programmatic dependent launch. A kernel that is launched with it may start while its predecessor
// in the stream still runs. Before sm_90 both calls are nothing: the launch has plain edges.

#ifdef INGOT_TRACE
#include "common/launch_trace.cuh"
#endif

namespace ingot::kernels {

// Returns when every earlier kernel of the stream has finished and its writes are visible. Every
// thread of every block calls it before it touches anything but weights, also a block without work.
inline void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#ifdef INGOT_TRACE
  launch_trace::stamp();
#endif
}

// Lets the next kernel of the stream start as soon as all blocks have called this or ended. It may
// be called before the results are written: the successor waits for those itself.
inline void release_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace ingot::kernels
