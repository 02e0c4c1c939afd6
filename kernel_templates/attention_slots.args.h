#pragma once
#include "common/kv_layout.cuh"
#include "common/types.cuh"

namespace ingot::kernels {

// Tokens of a compressed block, by kind of layer.
constexpr int SLOTS_HCA_RATIO = 128, SLOTS_CSA_RATIO = 4;

// A row is one query token. The window pool holds RING entries of each sequence in its pages,
// sequence after sequence: position q of sequence s is slot s * RING + q % RING. WIDE: rows of one
// sequence lie side by side, at consecutive positions; the pool has one more entry for each row,
// slot pass_slots + row, and windows list that of every position that the launch brings itself, so
// that no row's window is overwritten. What the rings must know afterwards is written to keep_slots
// when all rows have read them.
struct AttentionSlotsArgs {
  const int* positions;   // [rows] of the token in its sequence, from 0
  const int* sequences;   // [rows] sequence in the state pools; -1: an idle row, it has no keys
  const int* page_table;  // [sequences, page_stride] page of entries PAGE_ENTRIES * i and on in the
                          // HCA pool; not read when hca_slots is 0
  int* window_indices;    // [rows, WINDOW] slots of the window, oldest first, then -1; an idle
                          // row's stay as they are
  int* window_counts;     // [rows] slots in use
  int* append_slots;      // [rows] slot of the token itself in the window pool; -1: idle
  int* keep_slots;        // [rows] WIDE: its slot in the ring, of the newest RING tokens of each
                          // sequence; -1: the others, and idle
  int* hca_indices;       // [rows, hca_slots] slots of the compressed entries; those from the count
                          // on stay as they are; not written when hca_slots is 0
  int* hca_counts;        // [rows] slots in use
  int* csa_counts;        // [rows] entries of the CSA layers that the token sees
  int rows;               // 0 is allowed
  int hca_slots;          // of a row's list: at least (position + 1) / 128 of every row. 0 for a
                          // model without such layers
  int page_stride;        // pages from sequence to sequence
  int pass_slots;         // WIDE: slot of row 0
};

}  // namespace ingot::kernels
