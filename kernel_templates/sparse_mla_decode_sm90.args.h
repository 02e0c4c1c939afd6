#pragma once
#include "sparse_mla_decode.args.h"

namespace ingot::kernels {

constexpr int MLA_SM90_TILE_KV = 64;

// Dynamic shared memory of sparse_mla_decode_sm90: ring, Q, three tiles of P, tables, barriers. An
// unsplit block's result lies over the ring.
constexpr int sparse_mla_decode_sm90_smem_bytes(int tile_heads, int stages, int nsplit,
                                                bool scales_beside) {
  const int keys = stages * MLA_SM90_TILE_KV;
  const int ring = keys * MLA_SMEM_ROW_BYTES;
  const int q = tile_heads * MLA_DIMS * 2, p = 3 * tile_heads * MLA_SM90_TILE_KV * 2;
  const int scales = (scales_beside ? 1 : keys) * MLA_SCALE_BYTES;
  const int tables = keys * (8 + 7 * 2 + 4);
  const int heads = tile_heads * (2 * 4 + 4 * 4 + 4 * 4 + 4 + nsplit * 4);
  return sparse_mla_round_up(
      ring + q + p + scales + tables + heads + 4 * 4 + 32 * 8 + (3 * stages + 9) * 8, 128);
}

}  // namespace ingot::kernels
