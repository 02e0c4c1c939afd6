#pragma once
#include "sparse_mla_decode.args.h"

namespace ingot::kernels {

// Dynamic shared memory of sparse_mla_prefill: an unsplit block of sparse_mla_decode.
constexpr int sparse_mla_prefill_smem_bytes(int tile_heads, int tile_kv, int stages,
                                            int slabs_per_warp, bool scales_beside) {
  return sparse_mla_decode_smem_bytes(tile_heads, tile_kv, stages, 1, 1, slabs_per_warp,
                                      scales_beside);
}

}  // namespace ingot::kernels
