#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/sparse_mla_decode_problem.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SparseMlaDecodeParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/sparse_mla_decode.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/sparse_mla_decode.params.def"
#undef PARAM
  }
  bool operator==(const SparseMlaDecodeParams&) const = default;

  int pieces() const {
    return NSPLIT * KEY_GROUPS;
  }
};

/// Sparse MLA decode on mma.sync. Device code: sparse_mla_decode.cuh.
struct SparseMlaDecode {
  static constexpr std::string_view kStem = "sparse_mla_decode";
  using Params = SparseMlaDecodeParams;
  using Problem = SparseMlaDecodeProblem;
  using Args = SparseMlaDecodeArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static int smem_bytes(const Params& c) {
    return sparse_mla_decode_smem_bytes(c.TILE_HEADS, c.TILE_KV, c.STAGES, c.KEY_GROUPS, c.NSPLIT,
                                        c.SLABS_PER_WARP, c.SCALES_BESIDE);
  }
  static int threads(const Params& c) {
    return c.KEY_GROUPS * (256 / c.SLABS_PER_WARP + 32 * c.PRODUCER_WARPS);
  }
  static int blocks(const Problem& problem, const Params& c) {
    return c.NSPLIT * (problem.heads / c.TILE_HEADS) * problem.rows;
  }
  /// Blocks that surely run at once: the driver keeps 1 KiB of shared memory per block, and the
  /// kernel is loaded with the largest shared-memory carve-out.
  static int resident_blocks(const Params& c, const cu::DeviceLimits& device) {
    const int per_sm = std::min({c.BLOCKS_PER_SM, device.smem_per_sm_bytes / (smem_bytes(c) + 1024),
                                 device.threads_per_sm / threads(c)});
    return per_sm * device.sm_count;
  }

  /// The default without tuning.
  static Params default_params(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    problem.apply_to(base);
    base.BULK_COPY = device.arch >= 90;
    const bool wide = problem.heads >= 16 && problem.rows * problem.heads >= 512;
    base.TILE_HEADS = wide ? 16 : 8;
    base.PRODUCER_WARPS = 4;
    const auto fits = [&](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; };
    // Where 32 heads to a block leave no multiprocessor idle, each key is read by fewest blocks.
    Params widest = base;
    widest.TILE_HEADS = 32;
    if (problem.heads % 32 == 0 && device.arch < 100 &&
        10 * blocks(problem, widest) >= 9 * device.sm_count) {
      widest.TILE_KV = 64;
      for (widest.STAGES = 4; widest.STAGES >= 2; --widest.STAGES)
        if (fits(widest)) return widest;
      widest.TILE_KV = 32;
      widest.STAGES = 2;
      return widest;
    }
    // As many splits as run at once, while a piece has 32 keys or more.
    while (base.NSPLIT < 16 && problem.piece_keys(2 * base.NSPLIT) >= 32) {
      Params finer = base;
      finer.NSPLIT *= 2;
      if (blocks(problem, finer) > resident_blocks(finer, device)) break;
      base = finer;
    }
    if (base.NSPLIT > 1 || device.arch >= 100) return base;
    // Whole rows: two groups, of which one multiplies while the other is at its softmax.
    Params grouped = base;
    grouped.SLABS_PER_WARP = grouped.KEY_GROUPS = grouped.PRODUCER_WARPS = 2;
    grouped.TILE_KV = problem.piece_keys(2) >= 256 ? 64 : 32;
    if (!fits(grouped)) grouped.TILE_KV = 32;
    if (grouped.TILE_KV == 32 && problem.piece_keys(2) >= 96) grouped.STAGES = 3;
    if (!fits(grouped)) grouped.STAGES = 2;
    return fits(grouped) && problem.piece_keys(2) >= 2 * grouped.TILE_KV ? grouped : base;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const Params base = default_params(problem, device);
    const auto piece = [=](const Params& c) { return problem.piece_keys(c.pieces()); };
    const auto tiles = [=](const Params& c) { return (piece(c) + c.TILE_KV - 1) / c.TILE_KV; };
    return Space<Params>(base)
        .axis(&Params::TILE_HEADS, {8, 16, 32})
        .axis(&Params::TILE_KV, {16, 32, 48, 64, 80})
        .axis(&Params::STAGES, {1, 2, 3, 4})
        .axis(&Params::SLABS_PER_WARP, {1, 2})
        .axis(&Params::KEY_GROUPS, {1, 2})
        .axis(&Params::PRODUCER_WARPS, {2, 3, 4, 8})
        .axis(&Params::NSPLIT, {1, 2, 4, 8, 16})
        .axis(&Params::QK_BLOCK_SCALED, {false, true})
        .keep_if("the card multiplies block-scaled FP8",
                 [=](const Params& c) {
                   return !c.QK_BLOCK_SCALED || device.arch == 120 || device.arch == 121;
                 })
        .keep_if("the rank's heads are whole tiles",
                 [=](const Params& c) { return problem.heads % c.TILE_HEADS == 0; })
        .keep_if("bulk copies exist on the card",
                 [=](const Params& c) { return !c.BULK_COPY || device.arch >= 90; })
        .keep_if("a producer lane has one key of a tile",
                 [](const Params& c) { return c.TILE_KV <= 32 * c.PRODUCER_WARPS; })
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        .keep_if(
            "a block fits on a multiprocessor",
            [=](const Params& c) { return threads(c) <= std::min(device.threads_per_sm, 1024); })
        .keep_if("splits run at the same time",
                 [=](const Params& c) {
                   return c.NSPLIT == 1 || blocks(problem, c) <= resident_blocks(c, device);
                 })
        // Compiled for Blackwell, 32 heads need a register or two more than there are.
        .keep_if("32 heads to a block only before Blackwell",
                 [=](const Params& c) { return c.TILE_HEADS < 32 || device.arch < 100; })
        .keep_if("registers hold Q and O",
                 [](const Params& c) {
                   // Of a thread: 24 for each slab and 8 heads, beside what the rest needs.
                   const int warps = threads(c) / 32, rounded = (warps + 3) / 4 * 4;
                   const int registers = 65536 / (rounded * 32 * c.BLOCKS_PER_SM) / 8 * 8;
                   return std::min(registers, 168) >=
                          52 + c.SLABS_PER_WARP * (3 * c.TILE_HEADS + (c.TILE_HEADS > 8 ? 2 : 0)) +
                              (c.SLABS_PER_WARP == 2 ? 12 : 0);
                 })
        // Compiled for these, two groups need some registers more than there are.
        .keep_if("one key group on Blackwell",
                 [=](const Params& c) { return c.KEY_GROUPS == 1 || device.arch < 100; })
        // From here on: legal, but not among the fastest wherever it was measured.
        .keep_if("a piece has keys", [=](const Params& c) { return c == base || piece(c) >= 16; })
        .keep_if("splits are the most that run at once, or half as many",
                 [=](const Params& c) {
                   Params finer = c;
                   finer.NSPLIT *= 4;
                   return c == base || piece(finer) < 32 || finer.NSPLIT > 16 ||
                          blocks(problem, finer) > device.sm_count;
                 })
        .keep_if("8 heads to a block only while blocks are few",
                 [=](const Params& c) {
                   return c == base || c.TILE_HEADS > 8 || problem.heads == 8 ||
                          blocks(problem, c) <= 2 * device.sm_count;
                 })
        .keep_if("more heads to a block only while blocks are many",
                 [=](const Params& c) {
                   return c == base || c.TILE_HEADS == 8 ||
                          blocks(problem, c) * 3 > device.sm_count * 2;
                 })
        .keep_if("the ring is not longer than a piece",
                 [=](const Params& c) { return c == base || c.STAGES <= tiles(c); })
        .keep_if("a block's rings hold 96 to 256 keys or its piece",
                 [=](const Params& c) {
                   const int keys = c.STAGES * c.TILE_KV * c.KEY_GROUPS;
                   return c == base || (keys >= 96 && keys <= 256) || c.STAGES == tiles(c);
                 })
        .keep_if("tiles fit the piece",
                 [=](const Params& c) {
                   return c == base || tiles(c) * c.TILE_KV <= piece(c) + std::max(8, piece(c) / 5);
                 })
        // A tile costs a group a microsecond however few keys it has.
        .keep_if("small tiles only of short pieces",
                 [=](const Params& c) { return c == base || c.TILE_KV >= 32 || tiles(c) <= 2; })
        .keep_if("two key groups only of long pieces",
                 [=](const Params& c) { return c.KEY_GROUPS == 1 || piece(c) >= 2 * c.TILE_KV; })
        // A bulk copy takes its warp 80 cycles; what is brought at once should not wait for that.
        .keep_if("two slabs per warp only where they make room for a second key group",
                 [](const Params& c) { return c.SLABS_PER_WARP == 1 || c.KEY_GROUPS == 2; })
        .keep_if("as many producer warps as the first tile wants", [=](const Params& c) {
          return c == base || (c.SLABS_PER_WARP == 2 ? c.PRODUCER_WARPS == 2
                               : c.KEY_GROUPS == 2 ? c.PRODUCER_WARPS == 3 || c.PRODUCER_WARPS == 4
                                                   : c.PRODUCER_WARPS >= 4);
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(c.NSPLIT),
                     static_cast<unsigned>(problem.heads / c.TILE_HEADS),
                     static_cast<unsigned>(problem.rows)},
            .block = {static_cast<unsigned>(threads(c))},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }
  static i64 exchange_value_bytes(const Problem& problem, const Params& c) {
    return sparse_mla_exchange_value_bytes(problem.rows, problem.heads, c.NSPLIT, c.pieces());
  }
  static i64 exchange_sum_bytes(const Problem& problem, const Params& c) {
    return sparse_mla_exchange_sum_bytes(problem.rows, problem.heads, c.NSPLIT, c.pieces());
  }

  static std::vector<Problem> sample_problems() { return Problem::samples(); }
};

}  // namespace ingot::kernels
