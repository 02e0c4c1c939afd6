#pragma once

#include <algorithm>
#include <initializer_list>

#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

/// The work of a linear whose blocks walk over strips of 128 weight rows, cut into K tiles of 16
/// KB.
struct LinearWork {
  int strips = 1, k_tiles = 1, tokens = 1;

  int token_tiles(int tile_tokens) const { return (tokens + tile_tokens - 1) / tile_tokens; }
  /// K tiles of the longest split.
  int split_k_tiles(int split_k) const { return (k_tiles + split_k - 1) / split_k; }

  /// Grid of a launch: (splits of K, token tiles, blocks that share the strips), no more of the
  /// last than finish in as many rounds, so that the work is even.
  /// @param at_once  blocks that the card runs at the same time
  cu::Dim3 grid(int tile_tokens, int split_k, int at_once) const {
    const int across = split_k * token_tiles(tile_tokens);
    const int most = std::max(at_once / across, 1);
    const int rounds = (strips + most - 1) / most;
    return {static_cast<unsigned>(split_k), static_cast<unsigned>(token_tiles(tile_tokens)),
            static_cast<unsigned>((strips + rounds - 1) / rounds)};
  }
  /// Weight tiles that one block of such a grid goes through.
  int block_tiles(int split_k, const cu::Dim3& grid) const {
    const int blocks = static_cast<int>(grid.z);
    return (strips + blocks - 1) / blocks * split_k_tiles(split_k);
  }
};

/// What a linear runs with where nobody has tuned it: the smallest tile that holds the tokens, and
/// as many splits of K as the card runs at once with a strip each and that leave each four K tiles,
/// so that every multiprocessor has weights to read. The ring takes what a multiprocessor has, or
/// what a block's work fills: its copies start before the launch's turn comes, while the small
/// launches before it leave the memory idle. The tile shrinks where two stages do not fit.
/// @param tiles, stages, splits  ascending; of the space's axes
/// @param smem_bytes     of a candidate
template <class Params, class SmemBytes>
Params untuned_linear(Params base, const LinearWork& work, std::initializer_list<int> tiles,
                      std::initializer_list<int> stages, std::initializer_list<int> splits,
                      SmemBytes smem_bytes, const cu::DeviceLimits& device) {
  constexpr int kLeastTiles = 4, kMostSplitTokens = 512;
  for (const int tile : tiles) {
    base.TOKENS = tile;
    if (tile >= work.tokens) break;
  }
  base.STAGES = *stages.begin();
  while (smem_bytes(base) > device.smem_per_block_bytes && base.TOKENS > 8)
    base.TOKENS /= 2;
  for (const int split : splits) {
    const cu::Dim3 grid = work.grid(base.TOKENS, split, device.sm_count);
    if (split == 1 ||
        (static_cast<int>(grid.x * grid.y * grid.z) <= device.sm_count &&
         static_cast<int>(grid.z) == work.strips && work.k_tiles >= kLeastTiles * split &&
         split * base.TOKENS <= kMostSplitTokens)) {
      base.SPLIT_K = split;
    }
  }
  const int tiles_of_block =
      work.block_tiles(base.SPLIT_K, work.grid(base.TOKENS, base.SPLIT_K, device.sm_count));
  for (const int count : stages) {
    Params longer = base;
    longer.STAGES = count;
    if (count < tiles_of_block + 2 && smem_bytes(longer) <= device.smem_per_block_bytes)
      base.STAGES = count;
  }
  return base;
}

/// The axes and rules that linears with TOKENS, STAGES and SPLIT_K (and perhaps X_RESIDENT) share.
/// @param smem_bytes   of a candidate
/// @param most_stages  of a ring
template <class Params, class SmemBytes>
Space<Params> linear_space(const Params& base, const LinearWork& work, SmemBytes smem_bytes,
                           const cu::DeviceLimits& device, int most_stages = 12) {
  const auto grid = [=](const Params& c) {
    return work.grid(c.TOKENS, c.SPLIT_K, device.sm_count);
  };
  const auto blocks = [=](const Params& c) {
    const cu::Dim3 g = grid(c);
    return static_cast<int>(g.x * g.y * g.z);
  };
  Space<Params> space(base);
  if constexpr (requires { base.X_RESIDENT; }) {
    space.axis(&Params::X_RESIDENT, {false, true})
        .keep_if("the input is kept where a block needs it again", [=](const Params& c) {
          return c == base || !c.X_RESIDENT || static_cast<int>(grid(c).z) < work.strips;
        });
  }
  return space.axis(&Params::TOKENS, {8, 16, 32, 64})
      .axis(&Params::STAGES, {2, 3, 4, 6, 12})
      .axis(&Params::SPLIT_K, {1, 2, 4, 6, 8, 16})
      .keep_if("shared memory fits",
               [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
      .keep_if("no split is empty", [=](const Params& c) { return c.SPLIT_K <= work.k_tiles; })
      .keep_if("splits run at the same time",
               [=](const Params& c) { return c.SPLIT_K == 1 || blocks(c) <= device.sm_count; })
      // From here on: legal, but cannot be the fastest.
      .keep_if("the ring leaves room for what it runs beside",
               [=](const Params& c) { return c.STAGES <= most_stages; })
      .keep_if(
          "no token tile is mostly padding",
          [=](const Params& c) { return c == base || c.TOKENS == 8 || c.TOKENS < 2 * work.tokens; })
      .keep_if("tokens are not cut finer than needed",
               [=](const Params& c) { return c == base || c.TOKENS >= std::min(work.tokens, 64); })
      .keep_if("many splits only of few tokens",
               [](const Params& c) { return c.SPLIT_K * c.TOKENS <= 512; })
      .keep_if("the ring is not longer than a block's work",
               [=](const Params& c) {
                 return c == base || c.STAGES < work.block_tiles(c.SPLIT_K, grid(c)) + 2;
               })
      .keep_if("the ring holds a block's work, or half of what it could",
               [=](const Params& c) {
                 Params longer = c;
                 longer.STAGES = longer.STAGES * 2 - 1;
                 return c == base || c.STAGES >= work.block_tiles(c.SPLIT_K, grid(c)) ||
                        smem_bytes(longer) > device.smem_per_block_bytes ||
                        longer.STAGES > most_stages;
               })
      .keep_if("most of the card has work",
               [=](const Params& c) { return c == base || 3 * blocks(c) > device.sm_count; });
}

}  // namespace ingot::kernels
