#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

// Rows of experts: the pairs (token, expert) of a launch, ordered by expert, then by token. An
// expert's rows start at a multiple of 8 and nobody else uses the rest of its last 8.

// First row of an expert, with `before` pairs of the experts below it: needs no sum of rounded
// counts, so every expert finds its own.
constexpr int expert_first_row(int before, int expert) {
  return (before + 7) / 8 * 8 + 8 * expert;
}
// Rows that any routing of `tokens` tokens can need, a multiple of 8: the pitch of all that is kept
// by rows.
constexpr int expert_rows(int tokens, int topk, int experts) {
  return expert_first_row(tokens * topk, experts);
}

// Codes of rows are kept as tiles of the tensor core: [columns / 128][rows][128], where the 16-byte
// chunks of a row are swizzled by row % 8 and the columns of each 32 are in the order in which
// moe_weight_tiles' words unpack to bytes: lane c of a row has columns 8c .. 8c + 7, of which the
// first four are bytes 4c .. 4c + 3 and the others 16 bytes on, each four in the order 2, 0, 3, 1.
constexpr u32 EXPERT_BYTE_ORDER = 0x1302;  // of prmt
// Where column `col` of a group of 128 lies in row `row` of a tile.
constexpr int expert_tile_offset(int row, int col) {
  const int in_four = col % 4, byte = in_four == 0 ? 1 : in_four == 1 ? 3 : in_four == 2 ? 0 : 2;
  const int at = col / 32 * 32 + col % 8 / 4 * 16 + col % 32 / 8 * 4 + byte;
  return row * 128 + ((at / 16 ^ row % 8) * 16 | at % 16);
}

}  // namespace ingot::kernels
