#pragma once
#include "common/expert_rows.args.h"

namespace ingot::kernels {

// Both products of the routed experts of many tokens: gate and up with the activation between, then
// down. Rows are those of common/expert_rows.args.h.
struct MoePrefillArgs {
  const u8* weights;     // gate/up: [EXPERTS][INTER / 16][HIDDEN / 128] jobs of moe_decode
                         // down: [EXPERTS][HIDDEN / 32][INTER / 128]
  const u8* x;           // [K / 128][row_pitch][128] tiles; K: HIDDEN, of down INTER
  const float* x_scale;  // [K / 128][row_pitch]; gate/up of moe_prefill_sm90: [row_pitch]
  const int* first;      // [EXPERTS] of expert_order
  const int* count;      // [EXPERTS]
  // Gate/up writes h, weighted and quantised, as down reads it:
  const float* row_weight;  // [row_pitch] of expert_order
  u8* h;                    // [INTER / 128][row_pitch][128]
  float* h_scale;           // [INTER / 128][row_pitch]
  // Down writes
  void* y;        // [row_pitch, HIDDEN] bf16 (ROUND_EXPERTS) or fp32
  float limit;    // clamp of gate (above) and up (both sides); infinity for none
  int row_pitch;  // expert_rows(tokens of the workspace)
};

// Most tokens of a launch.
constexpr int MOE_PREFILL_TOKENS = 8192;

constexpr int MOE_PREFILL_ROWS = 256, MOE_PREFILL_JOBS = MOE_PREFILL_ROWS / 32;  // of a tile
constexpr int MOE_PREFILL_WEIGHT_BYTES = MOE_PREFILL_JOBS * 2176;
constexpr int moe_prefill_most_tiles(int experts, int topk, int tile_tokens) {
  return MOE_PREFILL_TOKENS * topk / tile_tokens + experts;
}
// Behind the ring: outputs of gate/up with their largest magnitudes, the plan, and barriers.
constexpr int moe_prefill_plan_bytes(int experts, int topk, int tile_tokens) {
  return (moe_prefill_most_tiles(experts, topk, tile_tokens) * 2 + experts * 10 + 64 + 15) / 16 *
         16;
}
// A ring of weights, inputs and their scales in front of that.
constexpr int moe_prefill_smem_bytes(int experts, int topk, int tile_tokens, int stages,
                                     bool down) {
  return stages * (MOE_PREFILL_WEIGHT_BYTES + tile_tokens * (128 + 4)) +
         (down ? 0 : tile_tokens * (128 + 8)) + moe_prefill_plan_bytes(experts, topk, tile_tokens) +
         stages * 2 * 8;
}

}  // namespace ingot::kernels
