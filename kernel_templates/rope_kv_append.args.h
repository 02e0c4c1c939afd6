#pragma once
#include "common/kv_layout.cuh"
#include "common/types.cuh"

namespace ingot::kernels {

// A KV entry: 448 e4m3 codes, 64 bf16 (rope dimensions), 7 ue8m0 scales and a zero byte.
constexpr int KV_DIMS = 512, KV_ROPE_DIMS = 64, KV_QUANT_DIMS = KV_DIMS - KV_ROPE_DIMS;
constexpr int KV_GROUP = 64;
constexpr int KV_DATA_BYTES = KV_QUANT_DIMS + 2 * KV_ROPE_DIMS, KV_SCALE_BYTES = 8;

struct RopeKvAppendArgs {
  const bf16* kv;            // [tokens, kv_stride] bf16, the first 512 of a row are read;
                             // 16-byte aligned
  const bf16* norm_weight;   // [512] bf16; read when NORMALIZE
  const float* frequencies;  // [32] of the layer's rope table
  const int* positions;      // [tokens]
  const int* slots;          // [tokens] entry in the pool: page * PAGE_ENTRIES + place;
                             // negative: the token is skipped
  u8* pool;                  // pages of PAGE_BYTES, 16-byte aligned
  // LATENT_DIMS: the query latent and its norm, 16-byte aligned.
  const bf16* latent;         // [tokens, LATENT_DIMS]
  const bf16* latent_weight;  // [LATENT_DIMS]
  bf16* latent_out;           // [tokens, LATENT_DIMS]; may be `latent`
  int tokens;
  int kv_stride;  // elements between tokens, a multiple of 8
  float epsilon;  // of the norms
};

}  // namespace ingot::kernels
