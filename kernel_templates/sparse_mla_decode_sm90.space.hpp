#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/sparse_mla_decode_problem.hpp"
#include "kernel_templates/sparse_mla_decode_sm90.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SparseMlaDecodeSm90Params {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/sparse_mla_decode_sm90.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/sparse_mla_decode_sm90.params.def"
#undef PARAM
  }
  bool operator==(const SparseMlaDecodeSm90Params&) const = default;

  int pieces() const {
    return NSPLIT;
  }
};

/// Sparse MLA decode on Hopper's wgmma. Device code: sparse_mla_decode_sm90.cuh.
struct SparseMlaDecodeSm90 {
  static constexpr std::string_view kStem = "sparse_mla_decode_sm90";
  using Params = SparseMlaDecodeSm90Params;
  using Problem = SparseMlaDecodeProblem;
  using Args = SparseMlaDecodeArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch == 90; }

  static int smem_bytes(const Params& c) {
    return sparse_mla_decode_sm90_smem_bytes(c.TILE_HEADS, c.STAGES, c.NSPLIT, c.SCALES_BESIDE);
  }
  static int blocks(const Problem& problem, const Params& c) {
    return c.NSPLIT * (problem.heads / c.TILE_HEADS) * problem.rows;
  }

  /// The default without tuning.
  static Params default_params(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    problem.apply_to(base);
    // The most heads of which every multiprocessor still has a block.
    for (const int heads : {16, 32, 64})
      if (problem.heads % heads == 0 &&
          problem.rows * problem.heads / heads * 10 >= 9 * device.sm_count)
        base.TILE_HEADS = heads;
    // Otherwise 32 of 64 in splits, where these are long enough to pay for the exchange.
    constexpr int kFewestKeys = 256;
    if (base.TILE_HEADS < 32 && problem.heads % 64 == 0) {
      for (const int splits : {2, 4}) {
        const int all = problem.rows * problem.heads / 32 * splits;
        if (all > device.sm_count || all * 10 < 9 * device.sm_count ||
            problem.piece_keys(splits) < kFewestKeys)
          continue;
        base.TILE_HEADS = 32;
        base.NSPLIT = splits;
      }
    }
    const int tiles = (problem.piece_keys(base.NSPLIT) + MLA_SM90_TILE_KV - 1) / MLA_SM90_TILE_KV;
    base.STAGES = std::clamp(tiles, 2, 5);
    while (base.STAGES > 2 && smem_bytes(base) > device.smem_per_block_bytes)
      --base.STAGES;
    return base;
  }
  /// Whether this family, not sparse_mla_decode, is the default without tuning: where blocks of 32
  /// heads or more fill the card.
  static bool is_default(const Problem& problem, const cu::DeviceLimits& device) {
    return runs_on(device) && default_params(problem, device).TILE_HEADS >= 32;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const Params base = default_params(problem, device);
    const auto piece = [=](const Params& c) { return problem.piece_keys(c.NSPLIT); };
    const auto tiles = [=](const Params& c) {
      return (piece(c) + MLA_SM90_TILE_KV - 1) / MLA_SM90_TILE_KV;
    };
    return Space<Params>(base)
        .axis(&Params::TILE_HEADS, {8, 16, 32, 64})
        .axis(&Params::STAGES, {2, 3, 4, 5})
        .axis(&Params::NSPLIT, {1, 2, 4, 8})
        .keep_if("the rank's heads are whole tiles",
                 [=](const Params& c) { return problem.heads % c.TILE_HEADS == 0; })
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        .keep_if(
            "splits run at the same time",
            [=](const Params& c) { return c.NSPLIT == 1 || blocks(problem, c) <= device.sm_count; })
        // From here on: legal, but cannot be the fastest.
        .keep_if("the ring is not longer than a piece",
                 [=](const Params& c) { return c == base || c.STAGES <= std::max(tiles(c), 2); })
        .keep_if("the ring is as long as a piece or as fits",
                 [=](const Params& c) {
                   Params longer = c;
                   longer.STAGES += 1;
                   return c == base || c.STAGES >= tiles(c) ||
                          smem_bytes(longer) > device.smem_per_block_bytes;
                 })
        .keep_if("splits are the most that run at once, or half as many",
                 [=](const Params& c) {
                   Params finer = c;
                   finer.NSPLIT *= 4;
                   return c == base || finer.NSPLIT > 8 ||
                          blocks(problem, finer) > device.sm_count || tiles(finer) <= 1;
                 })
        .keep_if("a piece has more than one tile",
                 [=](const Params& c) { return c == base || piece(c) > 64; })
        .keep_if("no more blocks than twice what runs at once",
                 [=](const Params& c) {
                   return c == base || c.TILE_HEADS == 64 || c.TILE_HEADS == problem.heads ||
                          blocks(problem, c) <= 2 * device.sm_count;
                 })
        .keep_if("most of the card has work", [=](const Params& c) {
          return c == base || 3 * blocks(problem, c) > 2 * device.sm_count;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(c.NSPLIT),
                     static_cast<unsigned>(problem.heads / c.TILE_HEADS),
                     static_cast<unsigned>(problem.rows)},
            .block = {512},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }
  static i64 exchange_value_bytes(const Problem& problem, const Params& c) {
    return sparse_mla_exchange_value_bytes(problem.rows, problem.heads, c.NSPLIT, c.NSPLIT);
  }
  static i64 exchange_sum_bytes(const Problem& problem, const Params& c) {
    return sparse_mla_exchange_sum_bytes(problem.rows, problem.heads, c.NSPLIT, c.NSPLIT);
  }

  static std::vector<Problem> sample_problems() { return Problem::samples(); }
};

}  // namespace ingot::kernels
