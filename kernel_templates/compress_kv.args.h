#pragma once
#include "common/kv_layout.cuh"
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int COMPRESS_ROPE_DIMS = 64;
constexpr int COMPRESS_SMEM_BYTES = 8 * 4;  // a sum of each warp, dynamic

// Channels of an entry, and of a token's K and S rows: with overlap half A (for the next block),
// then half B (for the token's own).
constexpr int compress_kv_dims(bool index_keys) {
  return index_keys ? 128 : 512;
}
constexpr int compress_kv_width(int ratio, bool index_keys) {
  return (ratio == 4 ? 2 : 1) * compress_kv_dims(index_keys);
}

// A sequence of the launch has tokens of consecutive positions in consecutive rows of the input.
struct CompressKvArgs {
  const float* k;            // [tokens, row_stride] fp32, WIDTH used: wkv * x; 16-byte aligned
  const float* s;            // likewise: wgate * x, without ape
  const float* ape;          // [RATIO, WIDTH] fp32, 16-byte aligned
  const bf16* norm_weight;   // [DIMS] bf16, 8-byte aligned
  const float* frequencies;  // [32] of the layer's rope table
  const int* row_starts;     // [sequences + 1] first row of each; equal ones: no tokens
  const int* positions;      // [tokens] position of each token in its sequence
  const int* slots;          // [sequences] row of the page table and of the state
  const int* page_table;     // [.., page_stride] page of entries PAGE_ENTRIES * i and on
  u8* pool;                  // pages of PAGE_BYTES, 16-byte aligned
  float* state;              // [.., STATE_ROWS, compress_kv_state_floats] 16-byte aligned; what a
                             // sequence finds is what its launch for the tokens before has left
  i64 row_stride;            // floats between tokens, a multiple of 4
  int page_stride;           // pages from sequence to sequence
  float epsilon;             // of the norm
};

// A row of the state, of the token of position p in row p % STATE_ROWS. CSA: its K row, then its S
// row with ape. HCA: by channel the largest S of the block so far, the sum of weights relative to
// it, and the sum of weighted K.
constexpr int compress_kv_state_floats(int ratio, bool index_keys) {
  return ratio == 4 ? 2 * compress_kv_width(ratio, index_keys) : 3 * compress_kv_dims(index_keys);
}

// Thread blocks of a sequence that brings at most so many tokens: one per block of tokens that it
// may touch, but that the first of the CSA takes two.
constexpr int compress_kv_shares(int tokens, int ratio) {
  const int touched = (tokens + ratio - 2) / ratio + 1;
  return ratio == 4 && touched > 1 ? touched - 1 : touched;
}

}  // namespace ingot::kernels
