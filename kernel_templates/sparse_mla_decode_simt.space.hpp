#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/sparse_mla_decode_problem.hpp"
#include "kernel_templates/sparse_mla_decode_simt.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SparseMlaDecodeSimtParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/sparse_mla_decode_simt.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/sparse_mla_decode_simt.params.def"
#undef PARAM
  }
  bool operator==(const SparseMlaDecodeSimtParams&) const = default;
};

/// Sparse MLA decode per head without tensor cores: the other families' independent check. Device
/// code: sparse_mla_decode_simt.cuh.
struct SparseMlaDecodeSimt {
  static constexpr std::string_view kStem = "sparse_mla_decode_simt";
  using Params = SparseMlaDecodeSimtParams;
  using Problem = SparseMlaDecodeProblem;
  using Args = SparseMlaDecodeArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    problem.apply_to(base);
    return Space<Params>(base).axis(&Params::WARPS, {4, 8});
  }
  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(problem.heads), static_cast<unsigned>(problem.rows)},
            .block = {static_cast<unsigned>(32 * c.WARPS)},
            .smem_bytes = static_cast<unsigned>(sparse_mla_decode_simt_smem_bytes(c.WARPS)),
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return Problem::samples(); }
};

}  // namespace ingot::kernels
