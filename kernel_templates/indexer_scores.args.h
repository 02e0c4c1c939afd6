#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

// An index key or the query of an index head: 128 e2m1 codes, the low nibble of a byte first, and
// four ue8m0 scales, one per 32. In a page of the pool the codes of all its entries come first,
// then their scales. A scale of 255 is NaN. Source: model specification section 4.3.
constexpr int INDEX_DIMS = 128, INDEX_GROUP = 32;
constexpr int INDEX_CODE_BYTES = INDEX_DIMS / 2, INDEX_SCALE_BYTES = INDEX_DIMS / INDEX_GROUP;

// A row is one query token; its keys are entries 0 .. counts[row] - 1 of its sequence. Rows ROWS *
// i and the ROWS - 1 after it are of one sequence; a row of no keys may fill up.
struct IndexerScoresArgs {
  const u8* q;            // [rows, HEADS, 64] e2m1 codes, 16-byte aligned
  const u8* q_scales;     // [rows, HEADS, 4] ue8m0, 4-byte aligned
  const bf16* weights;    // [rows, HEADS] of the heads, with all constant factors
  const u8* pool;         // pages of PAGE_BYTES, 16-byte aligned
  const int* page_table;  // [sequences, page_stride] page of entries PAGE_ENTRIES * i and on
  const int* sequences;   // [rows] row of the page table
  const int* counts;      // [rows] keys of the row
  float* scores;          // [rows, score_stride] fp32; entries from counts[row] on stay as they are
  i64 score_stride;       // floats from row to row
  int page_stride;        // pages from sequence to sequence
  int rows;
  int all_taken;  // rows of at most so many keys are not scored: all of them will be selected
};

// Dynamic shared memory: queries as f16 fragments, weights with their heads' units, counts, the
// schedule.
constexpr int indexer_scores_smem_bytes(int heads, int rows) {
  return (rows * heads * (INDEX_DIMS * 2 + 4) + rows * 4 + 32 * 4 + 2 * 4 + 15) / 16 * 16;
}

}  // namespace ingot::kernels
