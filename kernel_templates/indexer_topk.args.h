#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

// A row is one query token. Its candidates are entries 0 .. counts[row] - 1 of its sequence.
struct IndexerTopkArgs {
  const float* scores;    // [rows, score_stride] fp32, 16-byte aligned; what lies behind a row's
                          // count, and in a row of at most TOPK entries, has no effect
  const int* counts;      // [rows] entries of the row, at most the launch shape's
  const int* sequences;   // [rows] row of the page table; read when MAP_PAGES
  const int* page_table;  // [sequences, page_stride] page of entries PAGE_ENTRIES * i and on; read
                          // when MAP_PAGES
  int* indices;          // [rows, TOPK] the selected entries, ascending, then -1; MAP_PAGES: page *
                         // PAGE_ENTRIES + place instead, in the same order
  int* selected_counts;  // [rows] how many there are
  u32* nan_counts;       // [rows] how many scores were NaN is added; they count as -inf
  u32* candidate_keys;  // [rows, chunks, TOPK] workspace of any content, 16-byte aligned; used when
                        // there are several chunks and no clusters
  int* candidate_indices;  // [rows, chunks, TOPK] likewise
  u32* arrived;            // [rows] zero before the first launch, and again after each; likewise
  i64 score_stride;        // floats from row to row, a multiple of 4
  int page_stride;         // pages from sequence to sequence
};

// The histogram of a pass: linear in the ordered bits of the scores.
constexpr int INDEXER_TOPK_BINS = 2048;
// Places for candidates in shared memory, per thread.
constexpr int INDEXER_TOPK_LISTED = 4;

// Scores that one block selects from.
constexpr int indexer_topk_chunk(int threads, int vectors) {
  return threads * vectors * 4;
}
constexpr int indexer_topk_chunks(int entries, int chunk) {
  return entries <= chunk ? 1 : (entries + chunk - 1) / chunk;
}
// Dynamic shared memory: the bins, the list (key and place), three words per 32 places, the sums.
constexpr int indexer_topk_smem_bytes(int threads, int vectors) {
  return INDEXER_TOPK_BINS * 4 + INDEXER_TOPK_LISTED * threads * 6 +
         indexer_topk_chunk(threads, vectors) / 32 * 12 + 32 * 4 + 7 * 4;
}

// In a cluster: maxima that bound the selection, of all its blocks; keys that a block hands to the
// others.
constexpr int indexer_topk_cluster_maxima(int topk) {
  return 2 * topk;
}
constexpr int indexer_topk_cluster_listed(int topk) {
  return 2 * topk;
}
// Dynamic shared memory of each block: two barriers, the bins, all blocks' maxima, ranges of them a
// warp and lists, page numbers, sums.
constexpr int indexer_topk_cluster_smem_bytes(int cluster, int threads, int topk) {
  return 2 * 8 + INDEXER_TOPK_BINS * 4 + indexer_topk_cluster_maxima(topk) * 4 +
         cluster * threads / 32 * 16 + cluster * (16 + indexer_topk_cluster_listed(topk) * 4) +
         threads * 4 + 3 * 32 * 4 + 8 * 4;
}

}  // namespace ingot::kernels
