#pragma once
#include "act_quant.args.h"
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int HC_STREAMS = 4;
constexpr int HC_MIXES = 2 * HC_STREAMS + HC_STREAMS * HC_STREAMS;  // pre, post, comb
constexpr int HC_TOKENS = 16;                                       // of one tile at most
constexpr int HC_ROUND = 8;                                         // tokens of one Sinkhorn round
constexpr int HC_MIX_STRIDE = HC_STREAMS * HC_STREAMS + 4;          // floats of a token of it

struct HcPreArgs {
  const bf16* streams;   // X [tokens, 4, HIDDEN], 16-byte aligned
  const bf16* sublayer;  // AFTER_SUBLAYER: f [tokens, HIDDEN], output of the sublayer before
  const float* post_in;  // AFTER_SUBLAYER: [tokens, 4], 16-byte aligned; may be `post`
  const float* comb_in;  // AFTER_SUBLAYER: [tokens, 4, 4], 16-byte aligned; may be `comb`
  bf16* streams_out;     // AFTER_SUBLAYER: X' [tokens, 4, HIDDEN]; not `streams`
  const float* fn;       // [24, 4 * HIDDEN], HEAD: [4, 4 * HIDDEN]; 16-byte aligned
  const float* base;     // [24], HEAD: [4]
  const float* scale;    // [3], HEAD: [1]
  const bf16* norm;      // [HIDDEN] weight of the norm behind
  float* post;           // [tokens, 4]; not written when HEAD
  float* comb;           // [tokens, 4 (source), 4 (destination)]; not written when HEAD
  bf16* out;             // [tokens, HIDDEN] the sublayer's input, normalised
  fp8_e4m3* codes;       // QUANTIZE: `out` as act_quant's tiles [HIDDEN / 128][code_rows][128]
  float* code_scale;     // QUANTIZE: [HIDDEN / 128, code_rows]
  fp8_e4m3* row_codes;   // QUANTIZE: the same codes as act_quant's rows [tokens, HIDDEN], or null
  float* row_scale;      // QUANTIZE: [tokens, act_quant_scale_stride(HIDDEN)], if row_codes
  void* workspace;       // hc_pre_workspace_bytes(...) of 0xff before the first launch, left so
  int tokens;            // at least 1
  int code_rows;         // QUANTIZE: a multiple of 4, at least tokens
  int sinkhorn;          // iterations, the softmax counted
  float norm_epsilon;    // of both norms
  float hc_epsilon;
};

// Sums that one block hands on for one token: the mixes, padded to whole MMA columns, then the sum
// of squares, padded to whole 16-byte words.
constexpr int hc_pre_quads(bool head) {
  return head ? 3 : 7;
}
// Groups of channels, each one warp's where a token is finished by several blocks; so large that
// the quantiser's are whole.
constexpr int HC_GROUP = 128;
constexpr int hc_pre_groups(int hidden) {
  return (hidden + HC_GROUP - 1) / HC_GROUP;
}
// Each finisher of a token reads sums of its own, and puts back what was there; where there are
// several, so it does with the groups' squares, which stand behind all sums.
constexpr i64 hc_pre_sums_bytes(int tokens, int split_k, int finishers, bool head) {
  return 16LL * hc_pre_quads(head) * split_k * finishers *
         ((tokens + HC_TOKENS - 1) / HC_TOKENS * HC_TOKENS);
}
constexpr i64 hc_pre_workspace_bytes(int tokens, int hidden, int split_k, int finishers,
                                     bool head) {
  const i64 squares = finishers > 1 ? 4LL * finishers * hc_pre_groups(hidden) : 0;
  return hc_pre_sums_bytes(tokens, split_k, finishers, head) + squares * tokens;
}

// Offsets in dynamic shared memory. The less a block takes, the sooner it starts beside those of
// the launch before.
struct HcPreSizes {
  int partial;  // mixing: [warps][tile_tokens][values]
  int gathered, mixes,
      squares;  // finishing: [2][warps][values], [HC_ROUND][HC_MIX_STRIDE], [warps]
  int bytes;
};
constexpr HcPreSizes hc_pre_sizes(int warps, bool head, int tile_tokens) {
  const int values = 4 * hc_pre_quads(head);
  HcPreSizes s{};
  s.gathered = 4 * warps * tile_tokens * values;
  s.mixes = s.gathered + 4 * 2 * warps * values;
  s.squares = s.mixes + 4 * (head ? 0 : HC_ROUND * HC_MIX_STRIDE);
  s.bytes = (s.squares + 4 * warps + 15) / 16 * 16;
  return s;
}

}  // namespace ingot::kernels
