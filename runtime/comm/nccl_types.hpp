#pragma once

#include <cstddef>

#include "runtime/cuda/driver_types.hpp"

/// The part of <nccl.h> that we use, declared by us; nccl_api_check.cpp compares it with NCCL's
/// header where the build finds it.
namespace ingot::nccl {

using ncclComm_t = struct ncclComm*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclRedOp_t : int { ncclSum = 0, ncclMax = 2 };

enum ncclDataType_t : int {
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclFloat32 = 7,
  ncclBfloat16 = 9,
};

}  // namespace ingot::nccl
