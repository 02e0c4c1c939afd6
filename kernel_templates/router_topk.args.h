#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int ROUTER_TOKENS = 16;  // of one tile

struct RouterTopkArgs {
  const bf16* z;        // GATE: [tokens, HIDDEN], 16-byte aligned
  const bf16* gate;     // GATE: [EXPERTS, HIDDEN], 16-byte aligned
  const float* logits;  // not GATE: [tokens, EXPERTS], 16-byte aligned
  const float* bias;    // not HASH: [EXPERTS], enters the choice alone
  const u16* table;     // HASH: [vocabulary, TOP] experts of each token id
  const int* ids;       // HASH: [tokens] token ids
  int* experts;         // [tokens, TOP]: best first, or as the table lists them
  float* weights;       // [tokens, TOP]: they sum to route_scale
  void* workspace;      // GATE: router_topk_workspace_bytes(...) of 0xff before the first launch,
                        // left so
  int vocabulary;       // HASH: rows of the table
  int tokens;           // at least 1
  float route_scale;
};

constexpr i64 router_topk_workspace_bytes(int tokens, int experts) {
  return 4LL * tokens * experts;
}
// Partial sums of the warps of a block, and the scores of the tokens that its warps finish.
constexpr int router_topk_smem_bytes(int warps, int block_experts, int experts, bool gate) {
  return 4 * (gate ? warps * ROUTER_TOKENS * block_experts : 0) + 4 * warps * experts;
}

}  // namespace ingot::kernels
