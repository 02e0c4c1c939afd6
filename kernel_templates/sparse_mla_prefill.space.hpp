#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/sparse_mla_decode_problem.hpp"
#include "kernel_templates/sparse_mla_prefill.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SparseMlaPrefillParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/sparse_mla_prefill.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/sparse_mla_prefill.params.def"
#undef PARAM
  }
  bool operator==(const SparseMlaPrefillParams&) const = default;
};

/// Sparse MLA of many rows on mma.sync. Device code: sparse_mla_prefill.cuh.
struct SparseMlaPrefill {
  static constexpr std::string_view kStem = "sparse_mla_prefill";
  using Params = SparseMlaPrefillParams;
  using Problem = SparseMlaDecodeProblem;
  using Args = SparseMlaDecodeArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static int smem_bytes(const Params& c) {
    return sparse_mla_prefill_smem_bytes(c.TILE_HEADS, c.TILE_KV, c.STAGES, c.SLABS_PER_WARP,
                                         c.SCALES_BESIDE);
  }
  static int threads(const Params& c) { return 256 / c.SLABS_PER_WARP + 32 * c.PRODUCER_WARPS; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    problem.apply_to(base);
    base.BULK_COPY = device.arch >= 90;
    base.PRODUCER_WARPS = 4;
    // A key is converted once for all heads of a block. Compiled for Blackwell, 32 heads need a
    // register or two more than there are.
    const int most_heads = device.arch < 100 ? 32 : 16;
    for (const int heads : {16, 32})
      if (problem.heads % heads == 0 && heads <= most_heads) base.TILE_HEADS = heads;
    const auto fits = [=](const Params& c) {
      return smem_bytes(c) <= device.smem_per_block_bytes &&
             c.BLOCKS_PER_SM * (smem_bytes(c) + 1024) <= device.smem_per_sm_bytes;
    };
    for (base.STAGES = 3; base.STAGES > 1 && !fits(base);)
      --base.STAGES;
    // A rank of eight heads: two blocks of a multiprocessor, one of which multiplies while the
    // other converts keys.
    Params pair = base;
    pair.SLABS_PER_WARP = pair.BLOCKS_PER_SM = pair.PRODUCER_WARPS = pair.STAGES = 2;
    pair.TILE_KV = problem.selected_slots >= 256 ? 64 : 32;
    if (problem.heads == 8 && device.arch < 100 && fits(pair)) base = pair;
    return Space<Params>(base)
        .axis(&Params::TILE_HEADS, {8, 16, 32})
        .axis(&Params::TILE_KV, {32, 64})
        .axis(&Params::STAGES, {2, 3, 4})
        .axis(&Params::SLABS_PER_WARP, {1, 2})
        .axis(&Params::PRODUCER_WARPS, {2, 4})
        .axis(&Params::BLOCKS_PER_SM, {1, 2})
        .axis(&Params::QK_BLOCK_SCALED, {false, true})
        .keep_if("the card multiplies block-scaled FP8",
                 [=](const Params& c) {
                   return !c.QK_BLOCK_SCALED || device.arch == 120 || device.arch == 121;
                 })
        .keep_if("the rank's heads are whole tiles",
                 [=](const Params& c) { return problem.heads % c.TILE_HEADS == 0; })
        .keep_if("a producer lane has one key of a tile",
                 [](const Params& c) { return c.TILE_KV <= 32 * c.PRODUCER_WARPS; })
        .keep_if("shared memory fits", fits)
        .keep_if("two slabs per warp and two blocks go together",
                 [](const Params& c) { return c.SLABS_PER_WARP == c.BLOCKS_PER_SM; })
        .keep_if("registers hold Q and O",
                 [=](const Params& c) {
                   return c.TILE_HEADS <= most_heads &&
                          (c.BLOCKS_PER_SM == 1 || (c.TILE_HEADS <= 16 && device.arch < 100));
                 })
        // From here on: legal, but cannot be the fastest.
        .keep_if("as many heads as there are, or half",
                 [=](const Params& c) { return 2 * c.TILE_HEADS >= base.TILE_HEADS; })
        .keep_if("two producer warps where two blocks share the registers", [](const Params& c) {
          return c.PRODUCER_WARPS == (c.BLOCKS_PER_SM == 2 ? 2 : 4);
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& /*device*/) {
    return {.grid = {static_cast<unsigned>(problem.heads / c.TILE_HEADS),
                     static_cast<unsigned>(problem.rows)},
            .block = {static_cast<unsigned>(threads(c))},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.rows = 4096, .heads = 64},
            {.rows = 4096, .heads = 8},
            {.rows = 512, .heads = 16, .selected_slots = 0}};
  }
};

}  // namespace ingot::kernels
