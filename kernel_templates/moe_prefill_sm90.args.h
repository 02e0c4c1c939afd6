#pragma once
#include "moe_prefill.args.h"

namespace ingot::kernels {

// Four warpgroups that multiply, and one that copies. Shared memory: moe_prefill_smem_bytes.
constexpr int MOE_PREFILL_SM90_THREADS = 640;

}  // namespace ingot::kernels
