// Compiled only where the build finds NVIDIA's <nvrtc.h>: our declarations must agree with it.
#include "runtime/jit/nvrtc_api.hpp"

#include "runtime/base/abi_check.hpp"

#include <nvrtc.h>

namespace ingot::jit {

#define NVRTC_FUNCTION(symbol, parameters)                                       \
  static_assert(kSameSignature<decltype(NvrtcApi::symbol), decltype(&::symbol)>, \
                #symbol " differs from <nvrtc.h>");
#include "runtime/jit/nvrtc_functions.def"
#undef NVRTC_FUNCTION
static_assert(
    kSameSignature<decltype(NvrtcApi::nvrtcGetErrorString), decltype(&::nvrtcGetErrorString)>);

#define SAME_VALUE(name) static_assert(static_cast<int>(name) == static_cast<int>(::name))
SAME_VALUE(NVRTC_SUCCESS);
SAME_VALUE(NVRTC_ERROR_OUT_OF_MEMORY);
SAME_VALUE(NVRTC_ERROR_INVALID_OPTION);
SAME_VALUE(NVRTC_ERROR_COMPILATION);
SAME_VALUE(NVRTC_ERROR_BUILTIN_OPERATION_FAILURE);
#undef SAME_VALUE

}  // namespace ingot::jit
