#pragma once
#include "common/types.cuh"
#include "fp8_linear.args.h"
#include "router_topk.args.h"

namespace ingot::kernels {

constexpr int SHARED_FEW_WARPS = 8;   // of a block; they share the columns
constexpr int SHARED_FEW_ROWS = 32;   // of the down weight, a block's
constexpr int SHARED_FEW_PIECE = 16;  // weight lines of an mma

struct SharedExpertFewWeight {
  const fp8_e4m3* weight;  // [rows / 128][cols / 128][16384] e4m3 tiles
  const ue8m0* scale;      // [rows / 128, cols / 128]
};

struct SharedExpertFewArgs {
  RouterTopkArgs router;           // as with GATE; tokens at most TOKENS; workspace:
                                   // shared_expert_few_workspace_bytes(...) of 0xff before the
                                   // first launch, left so
  SharedExpertFewWeight gate, up;  // [INTER, HIDDEN]
  SharedExpertFewWeight down;      // [HIDDEN, INTER]
  const fp8_e4m3* xq;              // z, quantised: [HIDDEN / 128][x_rows][128], fp8_linear's xq
  const float* x_scale;            // [HIDDEN / 128, x_rows]
  bf16* out;                       // [tokens, HIDDEN]
  int x_rows;                      // a multiple of 4, at least tokens
  float limit;                     // clamp of gate (above) and up (both sides); infinity for none
};

// Blocks that multiply; one more chooses the experts.
constexpr int shared_expert_few_blocks(int hidden) {
  return hidden / SHARED_FEW_ROWS;
}
// Lines of gate, and as many of up, of a block that has channels: 8 where 16 would leave blocks
// without.
constexpr int shared_expert_few_lines(int hidden, int inter) {
  return inter / SHARED_FEW_PIECE >= shared_expert_few_blocks(hidden) ? 16 : 8;
}

// Offsets in the workspace: how many blocks have read the activations, logits, activations.
constexpr i64 SHARED_FEW_LOGITS = 16;
constexpr i64 shared_expert_few_activations(int tokens, int experts) {
  return SHARED_FEW_LOGITS + 4LL * tokens * experts;
}
constexpr i64 shared_expert_few_workspace_bytes(int tokens, int experts, int inter) {
  return shared_expert_few_activations(tokens, experts) + 2LL * tokens * inter;
}

// Offsets in dynamic shared memory. Gate and up lie there by tiles of K, of each tile gate's lines,
// then up's; so does down.
struct SharedExpertFewSizes {
  int up_tile, down_tile;  // bytes of a block's lines of one tile
  int down;                // behind gate and up
  int input, input_scale;  // codes [K tiles][TOKENS][128], scales [K tiles][scale_rows]
  int scale_rows;
  int logits;    // parts of the warps: [warps][tokens * expert rows]
  int barriers;  // [tiles of gate and up, of down]
  int bytes;
};
constexpr SharedExpertFewSizes shared_expert_few_sizes(int hidden, int inter, int experts,
                                                       int tokens) {
  const int up_tiles = hidden / FP8_TILE, down_tiles = inter / FP8_TILE;
  SharedExpertFewSizes s{};
  s.up_tile = 2 * shared_expert_few_lines(hidden, inter) * FP8_TILE;
  s.down_tile = SHARED_FEW_ROWS * FP8_TILE;
  s.down = up_tiles * s.up_tile;
  s.input = s.down + down_tiles * s.down_tile;
  s.scale_rows = (tokens + 3) / 4 * 4;
  s.input_scale = s.input + hidden * tokens;
  s.logits = s.input_scale + up_tiles * s.scale_rows * 4;
  s.barriers =
      s.logits + SHARED_FEW_WARPS * tokens * (experts / shared_expert_few_blocks(hidden)) * 4;
  s.bytes = s.barriers + (up_tiles + down_tiles) * 8;
  return s;
}

}  // namespace ingot::kernels
