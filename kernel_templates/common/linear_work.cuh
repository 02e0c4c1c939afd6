#pragma once
// How the linears of bf16 inputs deal their work to blocks: weights are strips of 128 rows, cut
// into K tiles of 16 KB.
#include "common/types.cuh"
#include "fp8_linear.args.h"

namespace ingot::kernels::linear {

// What one block works on: a tile of tokens and a range of K tiles, for every `step`th strip. Grid
// (SPLIT_K, token tiles, blocks that share the strips).
template <int K_TILES, int TOKENS, int SPLIT_K>
struct TileWork {
  static constexpr int MOST_TILES = (K_TILES + SPLIT_K - 1) / SPLIT_K;  // of a split

  int split, token, rows;  // rows: tokens of the tile that exist
  int k_begin, tiles;      // K tiles of the whole, and how many of them are this split's
  int first_strip, strips, step;

  __forceinline__ TileWork(int tokens, int all_strips) {
    split = SPLIT_K == 1 ? 0 : static_cast<int>(blockIdx.x);
    token = static_cast<int>(blockIdx.y) * TOKENS;
    rows = min(TOKENS, tokens - token);
    k_begin = fp8_linear_split_begin(K_TILES, SPLIT_K, split);
    tiles = fp8_linear_split_begin(K_TILES, SPLIT_K, split + 1) - k_begin;
    first_strip = static_cast<int>(blockIdx.z);
    step = static_cast<int>(gridDim.z);
    strips = all_strips;
  }
};

// A place in a block's sequence of tiles. A strip's K tiles are visited in a circle, from another
// place on for each strip: blocks that run side by side read the same input, and would all ask L2
// for the same few lines of it at the same moment. The order depends on the strip alone.
template <class Work, int STAGES>
struct TileCursor {
  int strip, k, done, stage;  // k: K tile from k_begin; done: of the strip, before this one

  static __forceinline__ int first_tile(int strip, int tiles) {
    return static_cast<u32>(strip) * 13u % 32u * static_cast<u32>(tiles) / 32u;
  }
  __forceinline__ explicit TileCursor(const Work& work)
      : strip(work.first_strip), k(first_tile(work.first_strip, work.tiles)), done(0), stage(0) {}
  __forceinline__ bool past_end(const Work& work) const { return strip >= work.strips; }
  __forceinline__ void advance(const Work& work) {
    if (++stage == STAGES) stage = 0;
    if (++done == work.tiles) {
      done = 0;
      strip += work.step;
      k = first_tile(strip, work.tiles);
    } else if (++k == work.tiles) {
      k = 0;
    }
  }
};

}  // namespace ingot::kernels::linear
