#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/memory_read.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct MemoryReadParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/memory_read.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/memory_read.params.def"
#undef PARAM
  }
  bool operator==(const MemoryReadParams&) const = default;
};

struct MemoryReadProblem {
  long long bytes = 0;  ///< a multiple of 16384; 0 times an empty kernel

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [bytes] = self;
    visit("bytes", bytes);
  }
};

/// Reads memory: the ceiling that other kernels are held against. Device code: memory_read.cuh.
struct MemoryRead {
  static constexpr std::string_view kStem = "memory_read";
  using Params = MemoryReadParams;
  using Problem = MemoryReadProblem;
  using Args = MemoryReadArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem&, const cu::DeviceLimits& device) {
    return Space<Params>(Params{})
        .axis(&Params::THREADS, {256, 512, 1024})
        .axis(&Params::BULK, {false, true})
        .keep_if("bulk copies exist on the card",
                 [=](const Params& c) { return !c.BULK || device.arch >= 90; })
        .keep_if("shared memory fits",
                 [=](const Params& c) {
                   return !c.BULK || smem_bytes(c) <= device.smem_per_block_bytes;
                 })
        .keep_if("the bulk reader has one size of block",
                 [](const Params& c) { return !c.BULK || c.THREADS == Params{}.THREADS; });
  }

  static int smem_bytes(const Params& c) { return c.STAGES * (MEMORY_READ_CHUNK + 8); }

  /// One block per multiprocessor and, for the plain reader, as many as fit, up to the work.
  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    const long long per_sm = c.BULK ? 1 : device.threads_per_sm / c.THREADS;
    const long long per_block = c.BULK ? MEMORY_READ_CHUNK : 16 * c.THREADS;
    const long long useful = (problem.bytes + per_block - 1) / per_block;
    const long long blocks = std::max(std::min(per_sm * device.sm_count, useful), 1LL);
    return {.grid = {static_cast<unsigned>(blocks)},
            .block = {static_cast<unsigned>(c.BULK ? 32 : c.THREADS)},
            .smem_bytes = static_cast<unsigned>(c.BULK ? smem_bytes(c) : 0),
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{}}; }
};

}  // namespace ingot::kernels
