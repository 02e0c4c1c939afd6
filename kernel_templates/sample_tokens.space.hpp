#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/sample_tokens.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SampleTokensParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/sample_tokens.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/sample_tokens.params.def"
#undef PARAM
  }
  bool operator==(const SampleTokensParams&) const = default;
};

/// Weights of so many tokens have room in a sum of 64 bits.
constexpr int SAMPLE_MOST_VOCABULARY = 1 << 17;

struct SampleTokensProblem {
  int vocabulary = 129280;  ///< at most SAMPLE_MOST_VOCABULARY
  int rows = 1;             ///< of the batch bucket

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [vocabulary, rows] = self;
    visit("vocabulary", vocabulary);
    visit("rows", rows);
  }
};

/// The sampler: one token a row. Device code: sample_tokens.cuh.
struct SampleTokens {
  static constexpr std::string_view kStem = "sample_tokens";
  using Params = SampleTokensParams;
  using Problem = SampleTokensProblem;
  using Args = SampleTokensArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.SPLIT = default_split(problem, device, base.THREADS);
    return Space<Params>(base)
        .axis(&Params::THREADS, {256, 512})  // the state of more spills
        .axis(&Params::SPLIT, {1, 2, 4, 8, 16, 32})
        .keep_if("the blocks of a row run at the same time",
                 [=](const Params& c) {
                   return c.SPLIT == 1 || c.SPLIT * problem.rows <= device.sm_count;
                 })
        // From here on: legal, but cannot be the fastest.
        .keep_if("every thread has ids", [=](const Params& c) {
          return c.SPLIT == 1 || 4 * c.SPLIT * c.THREADS <= problem.vocabulary;
        });
  }

  /// As many blocks as find room beside each other.
  static int default_split(const Problem& problem, const cu::DeviceLimits& device, int threads) {
    for (const int split : {32, 16, 8, 4, 2})
      if (split * problem.rows <= device.sm_count && 4 * split * threads <= problem.vocabulary)
        return split;
    return 1;
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(c.SPLIT), static_cast<unsigned>(problem.rows)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .smem_bytes = kSampleSmemBytes,
            .programmatic = true};
  }

  static i64 exchange_bytes(const Problem& problem, const Params& c) {
    return sample_exchange_bytes(problem.rows, c.SPLIT);
  }

  static std::vector<Problem> sample_problems() { return {{.rows = 1}, {.rows = 64}}; }
};

}  // namespace ingot::kernels
