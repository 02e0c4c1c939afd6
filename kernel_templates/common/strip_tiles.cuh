#pragma once
// How a grid of blocks that stay shares the tiles of a product of many tokens.
#include "common/types.cuh"

namespace ingot::kernels {

// The tiles of this block: strips of weight rows, one after another, for each tile of TOKENS.
template <int TOKENS>
struct StripTiles {
  int strips, count, tile;

  __forceinline__ StripTiles(int strips, int tokens)
      : strips(strips),
        count((tokens + TOKENS - 1) / TOKENS * strips),
        tile(static_cast<int>(blockIdx.x)) {}
  __forceinline__ bool exists() const { return tile < count; }
  __forceinline__ void advance() { tile += static_cast<int>(gridDim.x); }
  __forceinline__ int strip() const { return tile % strips; }
  __forceinline__ int token() const { return tile / strips * TOKENS; }
};

}  // namespace ingot::kernels
