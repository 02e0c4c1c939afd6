#pragma once

#include "runtime/cuda/stream.hpp"

namespace ingot::cu {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;

  bool operator==(const Dim3&) const = default;
};

/// How a kernel is launched: a function of the problem and the parameters, never of the arguments.
struct LaunchShape {
  Dim3 grid;
  Dim3 block;
  unsigned smem_bytes = 0;  ///< dynamic shared memory
  Dim3 cluster{};           ///< 1, 1, 1: no cluster
  /// The kernel may start before its predecessor in the stream has finished, and waits itself
  /// (griddepcontrol.wait) before it touches what the predecessor writes. Cards before sm_90 get a
  /// plain launch.
  bool programmatic = false;
};

/// Raises a function's limit of dynamic shared memory; needed once for more than 48 KiB.
void allow_dynamic_smem(const DriverApi& driver, CUfunction function, int bytes);

/// Queues a kernel whose one parameter is a struct at `arguments`, copied during the call.
/// Throws EngineError(cuda).
void launch(const Stream& stream, CUfunction function, const LaunchShape& shape,
            const void* arguments);

}  // namespace ingot::cu
