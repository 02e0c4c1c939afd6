#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/compress_kv.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct CompressKvParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/compress_kv.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/compress_kv.params.def"
#undef PARAM
  }
  bool operator==(const CompressKvParams&) const = default;
};

struct CompressKvProblem {
  int sequences = 1;
  int tokens = 1;  ///< at most so many new ones of a sequence
  int ratio = 4;   ///< 4 (CSA) or 128 (HCA)
  bool index_keys = false;
  int state_rows = 16;  ///< newest tokens whose state is kept
  // Layout of the pool.
  int page_entries = KV_PAGE_ENTRIES;
  int page_bytes = KV_PAGE_BYTES;
  int entry_stride = KV_ENTRY_STRIDE;
  bool scales_beside = KV_SCALES_BESIDE;

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [sequences, tokens, ratio, index_keys, state_rows, page_entries, page_bytes, entry_stride,
           scales_beside] = self;
    visit("sequences", sequences);
    visit("tokens", tokens);
    visit("ratio", ratio);
    visit("index_keys", index_keys);
    visit("state_rows", state_rows);
    visit("page_entries", page_entries);
    visit("page_bytes", page_bytes);
    visit("entry_stride", entry_stride);
    visit("scales_beside", scales_beside);
  }
};

/// The compressor: running state, pooled entries into the paged pool. Device code: compress_kv.cuh.
struct CompressKv {
  static constexpr std::string_view kStem = "compress_kv";
  using Params = CompressKvParams;
  using Problem = CompressKvProblem;
  using Args = CompressKvArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.RATIO = problem.ratio;
    base.INDEX_KEYS = problem.index_keys;
    base.STATE_ROWS = problem.state_rows;
    base.PAGE_ENTRIES = problem.page_entries;
    base.PAGE_BYTES = problem.page_bytes;
    base.ENTRY_STRIDE = problem.entry_stride;
    base.SCALES_BESIDE = problem.scales_beside;
    // As a tuning of an H200 chose: fewer channels a thread, so more threads, for entries that are
    // appended one by one.
    if (!problem.index_keys && problem.ratio == 4) base.CHANNELS = 2;
    if (!problem.index_keys && problem.ratio != 4 && problem.tokens <= 4) {
      base.CHANNELS = 2;
      base.TOKENS_AHEAD = 4;
    }
    return Space<Params>(base)
        .axis(&Params::CHANNELS, {2, 4})
        .axis(&Params::TOKENS_AHEAD, {4, 8, 16})
        .keep_if("a warp holds an index key",
                 [](const Params& c) { return !c.INDEX_KEYS || c.CHANNELS == 4; })
        .keep_if(
            "only the running softmax loads tokens ahead",
            [](const Params& c) { return c.RATIO != 4 || c.TOKENS_AHEAD == Params{}.TOKENS_AHEAD; })
        .keep_if("the tokens ahead fit the registers",
                 [](const Params& c) { return c.CHANNELS * c.TOKENS_AHEAD <= 32; });
  }

  static int threads(const Params& c) { return compress_kv_dims(c.INDEX_KEYS) / c.CHANNELS; }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(compress_kv_shares(problem.tokens, c.RATIO)),
                     static_cast<unsigned>(problem.sequences)},
            .block = {static_cast<unsigned>(threads(c))},
            .smem_bytes = COMPRESS_SMEM_BYTES,
            .programmatic = true};
  }

  /// The three compressors of the model, and one with the scales behind a page's entries.
  static std::vector<Problem> sample_problems() {
    return {{},
            {.ratio = 128},
            {.index_keys = true, .page_bytes = 64 * 68, .entry_stride = 64, .scales_beside = false},
            {.page_bytes = 37440, .entry_stride = 576, .scales_beside = false}};
  }
};

}  // namespace ingot::kernels
