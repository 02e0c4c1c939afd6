#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/sparse_mla_decode_problem.hpp"
#include "kernel_templates/sparse_mla_prefill_sm90.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SparseMlaPrefillSm90Params {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/sparse_mla_prefill_sm90.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/sparse_mla_prefill_sm90.params.def"
#undef PARAM
  }
  bool operator==(const SparseMlaPrefillSm90Params&) const = default;
};

/// Sparse MLA of many rows on Hopper's wgmma. Device code: sparse_mla_prefill_sm90.cuh.
struct SparseMlaPrefillSm90 {
  static constexpr std::string_view kStem = "sparse_mla_prefill_sm90";
  using Params = SparseMlaPrefillSm90Params;
  using Problem = SparseMlaDecodeProblem;
  using Args = SparseMlaDecodeArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch == 90; }

  static int smem_bytes(const Params& c) {
    return sparse_mla_prefill_sm90_smem_bytes(c.TILE_HEADS, c.STAGES, c.SCALES_BESIDE);
  }
  static int items(const Problem& problem, const Params& c) {
    return problem.rows * (problem.heads / c.TILE_HEADS);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    constexpr int kMostStages = 5;  // a tile is used for two steps, three more are on their way
    Params base;
    problem.apply_to(base);
    // The most heads: a tile's keys are converted once for all of them.
    for (const int heads : {16, 32, 64})
      if (problem.heads % heads == 0) base.TILE_HEADS = heads;
    base.STAGES = 2;
    const auto longer = [](Params c) {
      ++c.STAGES;
      return c;
    };
    while (base.STAGES < kMostStages && smem_bytes(longer(base)) <= device.smem_per_block_bytes)
      ++base.STAGES;
    return Space<Params>(base)
        .axis(&Params::TILE_HEADS, {8, 16, 32, 64})
        .axis(&Params::STAGES, {2, 3, 4, 5})
        .keep_if("the rank's heads are whole tiles",
                 [=](const Params& c) { return problem.heads % c.TILE_HEADS == 0; })
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        // From here on: legal, but cannot be the fastest.
        .keep_if("as many heads as there are, or half",
                 [=](const Params& c) { return 2 * c.TILE_HEADS >= base.TILE_HEADS; })
        .keep_if("three stages where they fit", [=](const Params& c) {
          return c.STAGES >= 3 || smem_bytes(longer(c)) > device.smem_per_block_bytes;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(std::min(items(problem, c), device.sm_count))},
            .block = {static_cast<unsigned>(MLA_SM90_THREADS)},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  /// Chunks of a prompt on one card and on one of eight: a window alone, with 512 selected keys,
  /// with contiguous compressed ones.
  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const int heads : {64, 32, 16, 8})
      problems.push_back({.rows = 4096, .heads = heads});
    for (const int heads : {64, 8})
      for (const int selected : {0, 1024})
        problems.push_back({.rows = 512, .heads = heads, .selected_slots = selected});
    return problems;
  }
};

}  // namespace ingot::kernels
