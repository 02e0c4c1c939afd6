#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/rope_kv_append.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct RopeKvAppendParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/rope_kv_append.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/rope_kv_append.params.def"
#undef PARAM
  }
  bool operator==(const RopeKvAppendParams&) const = default;
};

struct RopeKvAppendProblem {
  int tokens = 1;
  bool normalize = false;  ///< the input is before kv_norm
  int latent = 0;          ///< width of the query latent that is normalised beside; 0: none
  // Layout of the pool.
  int page_entries = KV_PAGE_ENTRIES;
  int page_bytes = KV_PAGE_BYTES;
  int entry_stride = KV_ENTRY_STRIDE;
  bool scales_beside = KV_SCALES_BESIDE;

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [tokens, normalize, latent, page_entries, page_bytes, entry_stride, scales_beside] = self;
    visit("tokens", tokens);
    visit("normalize", normalize);
    visit("latent", latent);
    visit("page_entries", page_entries);
    visit("page_bytes", page_bytes);
    visit("entry_stride", entry_stride);
    visit("scales_beside", scales_beside);
  }
};

/// The tail of the KV path, into the paged pool. Device code: rope_kv_append.cuh.
struct RopeKvAppend {
  static constexpr std::string_view kStem = "rope_kv_append";
  using Params = RopeKvAppendParams;
  using Problem = RopeKvAppendProblem;
  using Args = RopeKvAppendArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.NORMALIZE = problem.normalize;
    base.LATENT_DIMS = problem.latent;
    base.PAGE_ENTRIES = problem.page_entries;
    base.PAGE_BYTES = problem.page_bytes;
    base.ENTRY_STRIDE = problem.entry_stride;
    base.SCALES_BESIDE = problem.scales_beside;
    return Space<Params>(base).axis(&Params::WARPS, {1, 2, 4, 8});
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>((problem.tokens + c.WARPS - 1) / c.WARPS),
                     c.LATENT_DIMS > 0 ? 2U : 1U},
            .block = {static_cast<unsigned>(32 * c.WARPS)},
            .programmatic = true};
  }

  /// The default layout; that of FlashMLA with pages of 64 and of 2 entries; the tightest one.
  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const bool normalize : {false, true}) {
      problems.push_back({1, normalize, 0, 64, 37440, 576, false});
      problems.push_back({1, normalize, 0, 2, 1728, 576, false});
      problems.push_back({.tokens = 1, .normalize = normalize});
      problems.push_back({1, normalize, 0, 64, 64 * 584, 584, true});
    }
    problems.push_back({.tokens = 1, .normalize = true, .latent = 1024});
    problems.push_back({.tokens = 1, .normalize = true, .latent = 96});
    return problems;
  }
};

}  // namespace ingot::kernels
