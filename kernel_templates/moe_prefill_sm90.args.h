#pragma once
#include "moe_prefill.args.h"

namespace ingot::kernels {

// Four warpgroups that multiply, and one that copies.
constexpr int MOE_PREFILL_SM90_THREADS = 640;

// What moe_prefill has, and behind its plan of each stage how weight scales lie below their rows'
// references, a word a row, and the references, a byte a row; one more barrier a stage.
constexpr int moe_prefill_sm90_smem_bytes(int experts, int topk, int tile_tokens, int stages,
                                          bool down) {
  return moe_prefill_smem_bytes(experts, topk, tile_tokens, stages, down) +
         stages * (MOE_PREFILL_ROWS * (4 + 1) + 8);
}

}  // namespace ingot::kernels
