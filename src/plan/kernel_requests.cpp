#include "src/plan/kernel_requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "src/plan/step_kernels.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot {
namespace {

/// Collects the uses of kernels.
class Requests {
 public:
  Requests(const cu::DeviceLimits& device, const PlanScope& scope)
      : device_(device), scope_(scope) {}

  /// One use, which any of the families may serve.
  template <class First, class... Others>
  std::size_t want(const typename First::Problem& problem) {
    std::vector<kernels::VariantSet> sets = kernels::competing<First, Others...>(problem, device_);
    if (sets.empty()) {
      const std::vector<ProblemField> fields = problem_fields(problem);
      throw EngineError(
          ErrorCode::unsupported,
          fmt::format(
              "there are no GPU kernels for this model (--device cpu runs it): {} has no variant "
              "for {}",
              First::kStem, describe(fields)));
    }
    TuningRequest request = kernels::tuning_request_of(problem, sets);
    for (std::size_t i = 0; i < uses_.size(); ++i) {
      if (uses_[i].tuning.problem == request.problem &&
          uses_[i].tuning.candidates == request.candidates)
        return i;
    }
    uses_.push_back({std::move(request), std::move(sets)});
    return uses_.size() - 1;
  }

  const cu::DeviceLimits& limits() const { return device_; }
  bool disables(std::string_view family) const {
    return std::find(scope_.disabled.begin(), scope_.disabled.end(), family) !=
           scope_.disabled.end();
  }
  std::vector<KernelUse> take() { return std::move(uses_); }

 private:
  const cu::DeviceLimits& device_;
  const PlanScope& scope_;
  std::vector<KernelUse> uses_;
};

/// Decode steps of every batch and context; and chunks of prompts of as many tokens as a batch has
/// sequences, up to a whole step's.
std::vector<StepBucket> step_buckets(const ModelConfig& config, const PlanScope& scope) {
  std::vector<StepBucket> buckets;
  for (const int rows : scope.batch_buckets) {
    for (const std::int64_t context : scope.context_buckets) {
      StepBucket bucket{.rows = rows,
                        .sequences = rows,
                        .sequence_rows = 1,
                        .logit_rows = rows,
                        .context = context,
                        .sampled = can_sample(config)};
      if (!bucket.wide()) buckets.push_back(bucket);
      if (rows == 1) continue;
      bucket.sequences = bucket.logit_rows = 1;
      bucket.sequence_rows = rows;
      buckets.push_back(bucket);
    }
  }
  return buckets;
}

/// The attention kernels take whole tiles of heads.
Result<void> require_whole_head_tiles(const ModelConfig& config, int tp) {
  constexpr int kHeadTile = 8;
  if (config.num_heads / tp % kHeadTile == 0) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("there are no GPU kernels for this model (--device cpu runs it): {} "
                          "attention heads on each of "
                          "{} ranks are no multiple of {}",
                          config.num_heads / tp, tp, kHeadTile));
}

/// The kernels of the compressed-KV path are written for these widths.
Result<void> require_compressed_widths(const ModelConfig& config) {
  const bool csa = std::find(config.compress_ratios.begin(), config.compress_ratios.end(), 4) !=
                   config.compress_ratios.end();
  if (config.head_dim != kernels::compress_kv_dims(false) ||
      config.rope_dim != kernels::COMPRESS_ROPE_DIMS) {
    return fail(ErrorCode::unsupported,
                fmt::format("there are no GPU kernels for this model (--device cpu runs it): KV "
                            "entries of {} dimensions, "
                            "{} of them rope, instead of {} and {}",
                            config.head_dim, config.rope_dim, kernels::compress_kv_dims(false),
                            kernels::COMPRESS_ROPE_DIMS));
  }
  if (csa && (config.index_head_dim != kernels::INDEX_DIMS || config.index_heads % 8 != 0 ||
              config.index_topk % 4 != 0)) {
    return fail(ErrorCode::unsupported,
                fmt::format("there are no GPU kernels for this model (--device cpu runs it): an "
                            "indexer of {} heads of {} "
                            "dimensions and top {}; heads must be a multiple of 8, of {} "
                            "dimensions, and the top a multiple of 4",
                            config.index_heads, config.index_head_dim, config.index_topk,
                            kernels::INDEX_DIMS));
  }
  return {};
}

/// A sequence's ring holds the window of a narrow step's first query while its last is appended.
Result<void> require_window_in_ring(const ModelConfig& config) {
  if (config.sliding_window + kMostNarrowRows - 1 <= kWindowRing) return {};
  return fail(
      ErrorCode::unsupported,
      fmt::format("there are no GPU kernels for this model (--device cpu runs it): a sliding "
                  "window of {}, at most "
                  "{} fit beside the {} tokens of a step",
                  config.sliding_window, kWindowRing - kMostNarrowRows + 1, kMostNarrowRows));
}

/// FP8 weights are scaled by blocks of 128 x 128, and the kernels read whole blocks.
Result<void> require_whole_blocks(const ModelConfig& config, int tp) {
  constexpr int kBlock = 128;
  for (const int size :
       {config.hidden_size, config.q_lora_rank, config.head_dim,
        config.index_heads * config.index_head_dim, config.o_groups * config.o_lora_rank / tp,
        config.moe_intermediate_size / tp}) {
    if (size % kBlock != 0) {
      return fail(ErrorCode::unsupported,
                  fmt::format("there are no GPU kernels for this model (--device cpu runs it): a "
                              "linear's side of {} on "
                              "each of {} ranks is no multiple of {}",
                              size, tp, kBlock));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<KernelUse>> kernel_uses(const ModelConfig& config, const PlanScope& scope,
                                           const cu::DeviceLimits& device) {
  if (device.arch < 80) {
    return fail(
        ErrorCode::unsupported,
        fmt::format("no kernel family runs on sm_{}: sm_80 or later is needed", device.arch));
  }
  const std::vector<int> valid = valid_tp_sizes(config);
  if (std::find(valid.begin(), valid.end(), scope.tp_size) == valid.end()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("the model cannot be split over {} ranks; valid TP sizes: {}",
                            scope.tp_size, fmt::join(valid, ", ")));
  }
  if (config.hc_mult != kernels::HC_STREAMS) {
    return fail(ErrorCode::unsupported,
                fmt::format("there are no GPU kernels for this model (--device cpu runs it): it "
                            "has {} hyper-connection "
                            "streams, the kernels take {}",
                            config.hc_mult, kernels::HC_STREAMS));
  }
  if (auto whole = require_whole_blocks(config, scope.tp_size); !whole) {
    return tl::unexpected(whole.error());
  }
  if (auto widths = require_compressed_widths(config); !widths) {
    return tl::unexpected(widths.error());
  }
  if (auto heads = require_whole_head_tiles(config, scope.tp_size); !heads) {
    return tl::unexpected(heads.error());
  }
  if (auto window = require_window_in_ring(config); !window) {
    return tl::unexpected(window.error());
  }
  Requests requests(device, scope);
  try {
    for (const StepBucket& bucket : step_buckets(config, scope))
      StepKernels::want(requests, config, step_problems(config, scope.tp_size, bucket));
  } catch (const EngineError& error) {
    return tl::unexpected(error.error());
  }
  return requests.take();
}

Result<std::vector<kernels::VariantSet>> kernel_requests(const ModelConfig& config,
                                                         const PlanScope& scope,
                                                         const cu::DeviceLimits& device) {
  auto uses = kernel_uses(config, scope, device);
  if (!uses) return tl::unexpected(uses.error());
  std::vector<kernels::VariantSet> sets;
  for (KernelUse& use : *uses) {
    for (kernels::VariantSet& set : use.families) {
      const bool known = std::any_of(sets.begin(), sets.end(), [&](const auto& other) {
        return other.candidates == set.candidates;
      });
      if (!known) sets.push_back(std::move(set));
    }
  }
  return sets;
}

}  // namespace ingot
