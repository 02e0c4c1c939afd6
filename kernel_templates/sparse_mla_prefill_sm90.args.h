#pragma once
#include "sparse_mla_decode.args.h"

namespace ingot::kernels {

constexpr int MLA_PREFILL_TILE_KV = 64, MLA_PREFILL_THREADS = 512;

// Dynamic shared memory of sparse_mla_prefill_sm90: ring, Q, partial S of both math warpgroups, P,
// tables, barriers.
constexpr int sparse_mla_prefill_sm90_smem_bytes(int tile_heads, int stages, bool scales_beside) {
  const int keys = stages * MLA_PREFILL_TILE_KV;
  const int ring = keys * MLA_SMEM_ROW_BYTES;
  const int q = tile_heads * MLA_DIMS * 2, p = tile_heads * MLA_PREFILL_TILE_KV * 2;
  const int scores = 2 * tile_heads * (MLA_PREFILL_TILE_KV + MLA_SCORE_PAD) * 4;
  const int tables = keys * (3 * 4 + 7 * 2 + 4);
  const int scales = (scales_beside ? 2 : keys) * MLA_SCALE_BYTES;
  const int heads = tile_heads * 2 * 4;
  return sparse_mla_round_up(
      ring + q + p + scores + tables + scales + heads + 32 * 8 + 4 * 4 + (3 * stages + 5) * 8, 128);
}

}  // namespace ingot::kernels
