#pragma once
#include "common/kv_layout.cuh"
#include "common/types.cuh"

namespace ingot::kernels {

// A KV entry: 448 e4m3 codes, 64 bf16 (rope dimensions), 7 ue8m0 scales and a zero byte. Key and
// value are the same 512 numbers. Source: model specification section 4.2.
constexpr int MLA_DIMS = 512, MLA_ROPE_DIMS = 64, MLA_QUANT_DIMS = MLA_DIMS - MLA_ROPE_DIMS;
constexpr int MLA_ENTRY_BYTES = MLA_QUANT_DIMS + 2 * MLA_ROPE_DIMS, MLA_SCALE_BYTES = 8;
// An entry in shared memory, its scales behind it: an odd number of 16-byte words, so that the
// eight rows of a matrix load lie in different banks.
constexpr int MLA_SMEM_ROW_BYTES = 592;

// Arguments of every sparse MLA decode family. A row is one query token: a request with drafts has
// several. A row's keys are the first window_counts[row] slots of its window list and the first
// selected_counts[row] of its selected list; a slot may be -1 (unused); slots past the counts are
// not read as keys and may hold anything.
struct SparseMlaDecodeArgs {
  const bf16* q;              // [rows, heads, 512] bf16, 16-byte aligned
  const u8* window_pool;      // pages of WINDOW_PAGE_BYTES, 16-byte aligned
  const u8* selected_pool;    // pages of SELECTED_PAGE_BYTES, 16-byte aligned; never read when
                              // selected_slots is 0
  const int* window_indices;  // [rows, window_slots] page * WINDOW_PAGE_ENTRIES + place; -1 unused
  const int* selected_indices;  // [rows, selected_slots] likewise
  const int* window_counts;     // [rows] slots in use
  const int* selected_counts;   // [rows]; not read when selected_slots is 0
  const float* sink;         // [heads] logit that only enters the denominator; read when HAS_SINK
  const int* positions;      // [rows] of the query; read when INVERSE_ROPE
  const float* frequencies;  // [32] of the layer's rope table; read when INVERSE_ROPE
  bf16* out;                 // [rows, heads, 512] bf16, 16-byte aligned
  float* exchange_values;    // [rows, heads / TILE_HEADS, pieces, TILE_HEADS, 512] fp32, used when
                             // NSPLIT > 1; every byte 0xff before the first launch, and again
                             // after each
  float* exchange_sums;      // [rows, heads / TILE_HEADS, NSPLIT, pieces, TILE_HEADS, 2], likewise
  int rows;                  // of the launch
  int heads;                 // of this rank, a multiple of TILE_HEADS
  int window_slots, selected_slots;  // entries of a row's lists
};

constexpr int sparse_mla_round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Rows of the S^T partials and of P in shared memory are padded so that neither stores of fragments
// nor matrix loads meet in a bank.
constexpr int MLA_SCORE_PAD = 4, MLA_WEIGHT_PAD = 8, MLA_STAGED_PAD = 4;

// Dynamic shared memory of sparse_mla_decode.
constexpr int sparse_mla_decode_smem_bytes(int tile_heads, int tile_kv, int stages, int key_groups,
                                           int nsplit, int slabs_per_warp, bool scales_beside) {
  const int rows = stages * tile_kv * MLA_SMEM_ROW_BYTES;
  const int scales = (scales_beside ? 1 : stages * tile_kv) * MLA_SCALE_BYTES;
  const int scores = 8 / slabs_per_warp * tile_heads * (tile_kv + MLA_SCORE_PAD) * 4;
  const int tiles = rows + scales + scores;
  // The result of an unsplit group lies over its tiles.
  const int staged = (nsplit > 1 ? 1 : tile_heads) * (MLA_DIMS + MLA_STAGED_PAD) * 4;
  const int weights = tile_heads * (tile_kv + MLA_WEIGHT_PAD) * 2;
  const int key_tables = 7 * tile_kv * 2 + tile_kv * 4 + stages * tile_kv * 4;
  const int group = sparse_mla_round_up(sparse_mla_round_up(tiles > staged ? tiles : staged, 16) +
                                            weights + tile_heads * 4 + key_tables,
                                        128);
  const int barriers = 2 * key_groups * stages * 8;
  return sparse_mla_round_up(
      key_groups * group + barriers + 32 * 8 + key_groups * tile_heads * (8 + nsplit * 4), 128);
}

// Bytes of exchange_values and exchange_sums; `pieces` is NSPLIT times the key groups of a block.
constexpr i64 sparse_mla_exchange_value_bytes(int rows, int heads, int nsplit, int pieces) {
  return nsplit > 1 ? static_cast<i64>(rows) * heads * pieces * MLA_DIMS * 4 : 0;
}
constexpr i64 sparse_mla_exchange_sum_bytes(int rows, int heads, int nsplit, int pieces) {
  return nsplit > 1 ? static_cast<i64>(rows) * heads * nsplit * pieces * 8 : 0;
}

}  // namespace ingot::kernels
