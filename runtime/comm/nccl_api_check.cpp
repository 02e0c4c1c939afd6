// Compiled only where the build finds NVIDIA's <nccl.h>: our declarations must agree with it.
#include "runtime/comm/nccl_api.hpp"

#include "runtime/base/abi_check.hpp"

#include <nccl.h>

namespace ingot::nccl {

#define NCCL_FUNCTION(symbol, parameters)                                       \
  static_assert(kSameSignature<decltype(NcclApi::symbol), decltype(&::symbol)>, \
                #symbol " differs from <nccl.h>");
#include "runtime/comm/nccl_functions.def"
#undef NCCL_FUNCTION
static_assert(
    kSameSignature<decltype(NcclApi::ncclGetErrorString), decltype(&::ncclGetErrorString)>);
static_assert(kSameSignature<decltype(NcclApi::ncclGetLastError), decltype(&::ncclGetLastError)>);

#define SAME_VALUE(name) static_assert(static_cast<int>(name) == static_cast<int>(::name))
SAME_VALUE(ncclSuccess);
SAME_VALUE(ncclUnhandledCudaError);
SAME_VALUE(ncclSystemError);
SAME_VALUE(ncclInternalError);
SAME_VALUE(ncclInvalidArgument);
SAME_VALUE(ncclInvalidUsage);
SAME_VALUE(ncclRemoteError);
SAME_VALUE(ncclInProgress);
SAME_VALUE(ncclSum);
SAME_VALUE(ncclMax);
SAME_VALUE(ncclUint8);
SAME_VALUE(ncclInt32);
SAME_VALUE(ncclFloat32);
SAME_VALUE(ncclBfloat16);
#undef SAME_VALUE

static_assert(sizeof(ncclUniqueId) == sizeof(::ncclUniqueId) &&
              alignof(ncclUniqueId) == alignof(::ncclUniqueId));

}  // namespace ingot::nccl
