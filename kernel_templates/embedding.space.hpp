#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/embedding.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct EmbeddingParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/embedding.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/embedding.params.def"
#undef PARAM
  }
  bool operator==(const EmbeddingParams&) const = default;
};

struct EmbeddingProblem {
  int hidden = 4096;  ///< channels, a multiple of 8
  int streams = 4;    ///< copies of each row
  int tokens = 1;     ///< of a launch: of the batch bucket, not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, streams, tokens] = self;
    visit("hidden", hidden);
    visit("streams", streams);
    visit("tokens", tokens);
  }
};

/// Rows of the embedding, replicated to the hyper-connection streams. Device code: embedding.cuh.
struct Embedding {
  static constexpr std::string_view kStem = "embedding";
  using Params = EmbeddingParams;
  using Problem = EmbeddingProblem;
  using Args = EmbeddingArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.HIDDEN = problem.hidden;
    base.STREAMS = problem.streams;
    return Space<Params>(base).axis(&Params::THREADS, {32, 64, 128, 256, 512});
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const int vectors = problem.hidden / 8;
    return {.grid = {static_cast<unsigned>((vectors + c.THREADS - 1) / c.THREADS),
                     static_cast<unsigned>(problem.tokens)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{.streams = 4}, {.streams = 1}}; }
};

}  // namespace ingot::kernels
