#pragma once
#include "act_quant.args.h"
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int HC_STREAMS = 4;
constexpr int HC_MIXES = 2 * HC_STREAMS + HC_STREAMS * HC_STREAMS;  // pre, post, comb
constexpr int HC_TOKENS = 16;                                       // of one tile
constexpr int HC_ROUND = 32;                                        // tokens of one Sinkhorn round

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
constexpr i64 hc_pre_workspace_bytes(int tokens, int split_k, bool head) {
  return 16LL * hc_pre_quads(head) * split_k * ((tokens + HC_TOKENS - 1) / HC_TOKENS * HC_TOKENS);
}

// Offsets in dynamic shared memory. A block mixes all of its tiles before it finishes tokens, so
// both use the same place: the less a block takes, the sooner it starts beside those of the launch
// before.
struct HcPreSizes {
  int partial;                   // mixing: [warps][16 tokens][values]
  int gathered, mixes, squares;  // finishing: [2][warps][values], [32 tokens][values + 1], [warps]
  int bytes;
};
constexpr HcPreSizes hc_pre_sizes(int warps, bool head) {
  const int values = 4 * hc_pre_quads(head);
  HcPreSizes s{};
  s.mixes = s.gathered + 4 * 2 * warps * values;
  s.squares = s.mixes + 4 * (head ? 0 : HC_ROUND * (values + 1));
  const int mixing = 4 * warps * HC_TOKENS * values, finishing = s.squares + 4 * warps;
  s.bytes = ((mixing > finishing ? mixing : finishing) + 15) / 16 * 16;
  return s;
}

}  // namespace ingot::kernels
