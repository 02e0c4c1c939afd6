#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/rms_norm.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct RmsNormParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/rms_norm.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/rms_norm.params.def"
#undef PARAM
  }
  bool operator==(const RmsNormParams&) const = default;
};

struct RmsNormProblem {
  int hidden = 4096;
  int rows = 1;  ///< rows of a launch: of the batch bucket, not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, rows] = self;
    visit("hidden", hidden);
    visit("rows", rows);
  }
};

/// Root mean square norm of rows with one weight vector. Device code: rms_norm.cuh.
struct RmsNorm {
  static constexpr std::string_view kStem = "rms_norm";
  using Params = RmsNormParams;
  using Problem = RmsNormProblem;
  using Args = RmsNormArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.HIDDEN = problem.hidden;
    return Space<Params>(base)
        .axis(&Params::THREADS_PER_ROW, {32, 64, 128, 256, 512})
        .axis(&Params::ROWS_PER_BLOCK, {1, 2, 4})
        .axis(&Params::VECTOR, {2, 4, 8})
        .keep_if("a row is whole vectors", [](const Params& c) { return c.HIDDEN % c.VECTOR == 0; })
        .keep_if("a block has at most 1024 threads",
                 [](const Params& c) { return c.THREADS_PER_ROW * c.ROWS_PER_BLOCK <= 1024; })
        .keep_if("a block fits on a multiprocessor",
                 [=](const Params& c) {
                   return c.THREADS_PER_ROW * c.ROWS_PER_BLOCK <= device.threads_per_sm;
                 })
        // Each thread keeps its part of the row and of the weights in registers, two elements in
        // each: 64 elements are 64 registers, which leaves room for addresses.
        .keep_if("a thread's share of a row stays in registers",
                 [](const Params& c) { return c.HIDDEN <= 64 * c.THREADS_PER_ROW; });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& params) {
    const auto rows_per_block = static_cast<unsigned>(params.ROWS_PER_BLOCK);
    const unsigned blocks =
        (static_cast<unsigned>(problem.rows) + rows_per_block - 1) / rows_per_block;
    return {.grid = {blocks},
            .block = {static_cast<unsigned>(params.THREADS_PER_ROW), rows_per_block},
            .smem_bytes = static_cast<unsigned>(
                rms_norm_smem_bytes(params.ROWS_PER_BLOCK, params.THREADS_PER_ROW)),
            .programmatic = true};
  }

  /// The shapes of DeepSeek-V4-Flash (hidden, q_lora_rank, head_dim) and one that fills no vector.
  static std::vector<Problem> sample_problems() {
    return {{.hidden = 4096}, {.hidden = 1024}, {.hidden = 512}, {.hidden = 100}};
  }
};

}  // namespace ingot::kernels
