#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

struct EmbeddingArgs {
  const int* ids;     // [tokens]
  const bf16* table;  // [rows, HIDDEN], 16-byte aligned: the rank's share of the vocabulary
  bf16* out;          // [tokens, STREAMS, HIDDEN], 16-byte aligned
  int first_row;      // id of the table's first row
  int rows;           // of the table
  int tokens;         // 0 is allowed
};

}  // namespace ingot::kernels
