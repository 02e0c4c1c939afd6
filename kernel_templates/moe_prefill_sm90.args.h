#pragma once
#include "moe_prefill.args.h"

namespace ingot::kernels {

// What one stage of the ring takes: weights, inputs, their scales, and what is made of the weights'
// scales: 32 bytes a row, and its reference.
constexpr int moe_prefill_sm90_stage_bytes(int tile_tokens) {
  return MOE_PREFILL_WEIGHT_BYTES + tile_tokens * (128 + 4) + MOE_PREFILL_ROWS * (32 + 4);
}
constexpr int moe_prefill_sm90_smem_bytes(int experts, int topk, int tile_tokens, int stages,
                                          bool down) {
  return stages * moe_prefill_sm90_stage_bytes(tile_tokens) + (down ? 0 : tile_tokens * (128 + 8)) +
         moe_prefill_plan_bytes(experts, topk, tile_tokens) + stages * 4 * 8 + stages * 8;
}

}  // namespace ingot::kernels
