#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/matrix_rate.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct MatrixRateParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/matrix_rate.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/matrix_rate.params.def"
#undef PARAM
  }
  bool operator==(const MatrixRateParams&) const = default;
};

struct MatrixRateProblem {
  bool fp8 = false;

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [fp8] = self;
    visit("fp8", fp8);
  }
};

/// Multiplies: the tensor cores' rate, which other kernels are held against. Device code:
/// matrix_rate.cuh.
struct MatrixRate {
  static constexpr std::string_view kStem = "matrix_rate";
  using Params = MatrixRateParams;
  using Problem = MatrixRateProblem;
  using Args = MatrixRateArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    // Without such tensor cores the space of FP8 is that of f16.
    const bool fp8 = problem.fp8 && device.arch >= 89;
    const bool warpgroups = device.arch == 90;
    return Space<Params>(Params{.WGMMA = fp8 && warpgroups, .FP8 = fp8})
        .axis(&Params::THREADS, {256, 512})
        .axis(&Params::WGMMA, {false, true})
        .keep_if("warpgroup products exist on the card",
                 [=](const Params& c) { return !c.WGMMA || warpgroups; })
        .keep_if("e4m3 is not emulated",
                 [=](const Params& c) { return !c.FP8 || c.WGMMA || !warpgroups; });
  }

  static int smem_bytes(const Params& c) {
    return c.WGMMA ? MATRIX_RATE_PRODUCTS * MATRIX_RATE_TILE_BYTES : 0;
  }

  /// As many blocks as fill the card with 1,024 threads a multiprocessor.
  static cu::LaunchShape launch_shape(const Problem&, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(1024 / c.THREADS * device.sm_count)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c))};
  }

  /// Floating point operations of a launch.
  static double operations(const Params& c, const cu::LaunchShape& shape, int rounds) {
    const double threads = static_cast<double>(shape.grid.x) * c.THREADS;
    return 2.0 * matrix_rate_multiplies(c.WGMMA, c.FP8) * MATRIX_RATE_PRODUCTS * rounds * threads /
           (c.WGMMA ? 128 : 32);
  }

  static std::vector<Problem> sample_problems() { return {{}, {.fp8 = true}}; }
};

}  // namespace ingot::kernels
