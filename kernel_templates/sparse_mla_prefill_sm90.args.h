#pragma once
#include "sparse_mla_decode_sm90.args.h"

namespace ingot::kernels {

// Dynamic shared memory of sparse_mla_prefill_sm90: with that of the tiles what belongs to two
// items, and the factors of the finished heads.
constexpr int sparse_mla_prefill_sm90_smem_bytes(int tile_heads, int stages, bool scales_beside) {
  return sparse_mla_round_up(sparse_mla_sm90_tile_bytes(tile_heads, stages, scales_beside) +
                                 2 * (32 * 8 + tile_heads * 4 + 8) + tile_heads * 4,
                             128);
}

}  // namespace ingot::kernels
