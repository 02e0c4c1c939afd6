#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/attention_slots.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct AttentionSlotsParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/attention_slots.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/attention_slots.params.def"
#undef PARAM
  }
  bool operator==(const AttentionSlotsParams&) const = default;
};

struct AttentionSlotsProblem {
  int rows = 1;  ///< of a launch: of the batch bucket, not a parameter of the code
  int window = 128;
  int ring = 128;     ///< window entries of a sequence, a multiple of page_entries
  bool wide = false;  ///< rows have entries of their own beside the rings
  int page_entries = KV_PAGE_ENTRIES;
  int hca_slots = 64;  ///< of a row's list: of the context bucket, not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [rows, window, ring, wide, page_entries, hca_slots] = self;
    visit("rows", rows);
    visit("window", window);
    visit("ring", ring);
    visit("wide", wide);
    visit("page_entries", page_entries);
    visit("hca_slots", hca_slots);
  }
};

/// The lists of keys that attention reads in all layers of a step. Device code:
/// attention_slots.cuh.
struct AttentionSlots {
  static constexpr std::string_view kStem = "attention_slots";
  using Params = AttentionSlotsParams;
  using Problem = AttentionSlotsProblem;
  using Args = AttentionSlotsArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.WINDOW = problem.window;
    base.RING = problem.ring;
    base.WIDE = problem.wide;
    base.PAGE_ENTRIES = problem.page_entries;
    // Short lists are one block's; long ones are shared while rows leave multiprocessors idle.
    base.THREADS = problem.hca_slots >= 256 ? 256 : 128;
    const bool shared = !problem.wide && problem.hca_slots >= 1024;
    base.SPLIT = shared && problem.rows <= device.sm_count ? 4 : 1;
    return Space<Params>(base).axis(&Params::THREADS, {128, 256}).axis(&Params::SPLIT, {1, 4, 16});
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(c.SPLIT), static_cast<unsigned>(problem.rows)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.ring = 128}, {.ring = 640}, {.ring = 384, .wide = true}};
  }
};

}  // namespace ingot::kernels
