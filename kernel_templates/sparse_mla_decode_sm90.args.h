#pragma once
#include "sparse_mla_decode.args.h"

namespace ingot::kernels {

constexpr int MLA_SM90_TILE_KV = 64, MLA_SM90_THREADS = 512;

// Shared memory that the wgmma families have in common: ring, Q, S and two tiles of P, tables,
// barriers. (TileStorage in common/sparse_mla_warpgroups.cuh)
constexpr int sparse_mla_sm90_tile_bytes(int tile_heads, int stages, bool scales_beside) {
  const int keys = stages * MLA_SM90_TILE_KV;
  const int ring = keys * MLA_SMEM_ROW_BYTES;
  const int q = tile_heads * MLA_DIMS * 2, p = 2 * tile_heads * MLA_SM90_TILE_KV * 2;
  const int scores = tile_heads * (MLA_SM90_TILE_KV + MLA_SCORE_PAD) * 4;
  const int scales = (scales_beside ? 1 : keys) * MLA_SCALE_BYTES;
  const int tables = keys * (4 + 8 + 7 * 2 + 4);
  const int heads = tile_heads * (2 * 4 + 8);
  const int aligned = sparse_mla_round_up(ring + q + scores + p + tables + scales, 16) + 2 * 8 * 4;
  return sparse_mla_round_up(aligned + heads + (2 * stages + 3) * 8, 16);
}

// Dynamic shared memory of sparse_mla_decode_sm90: with it rotations, sinks, factors of pieces.
constexpr int sparse_mla_decode_sm90_smem_bytes(int tile_heads, int stages, int nsplit,
                                                bool scales_beside) {
  return sparse_mla_round_up(sparse_mla_sm90_tile_bytes(tile_heads, stages, scales_beside) +
                                 32 * 8 + tile_heads * (4 + nsplit * 4),
                             128);
}

}  // namespace ingot::kernels
