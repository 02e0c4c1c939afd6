#pragma once
#include "hc_pre.args.h"

namespace ingot::kernels {

struct HcPostArgs {
  const bf16* streams;   // X [tokens, 4, HIDDEN], 16-byte aligned
  const bf16* sublayer;  // f [tokens, HIDDEN]
  const float* post;     // [tokens, 4], 16-byte aligned
  const float* comb;     // [tokens, 4 (source), 4 (destination)], 16-byte aligned
  bf16* out;             // X' [tokens, 4, HIDDEN]; may be `streams`
  int tokens;            // 0 is allowed
};

}  // namespace ingot::kernels
