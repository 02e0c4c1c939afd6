#pragma once

#include <type_traits>

#include "kernel_templates/expert_gather.space.hpp"
#include "kernel_templates/expert_join.space.hpp"
#include "kernel_templates/expert_order.space.hpp"
#include "kernel_templates/moe_prefill_sm90.space.hpp"
#include "tests/support/kernel_target.hpp"
#include "tests/support/moe_experts.hpp"

/// The launches of routed experts of many tokens against the reference.
namespace ingot::test {

/// The variants of one pass: expert_order, expert_gather, both products, expert_join.
struct MoePrefillVariants {
  kernels::ExpertOrderParams order;
  kernels::ExpertGatherParams gather;
  kernels::ExpertJoinParams join;
  jit::Variant gate_up, down;
  cu::LaunchShape gate_up_shape, down_shape;

  std::vector<jit::Variant> all() const;
};

/// @param Family  MoePrefill or MoePrefillSm90
template <class Family>
MoePrefillVariants moe_prefill_variants(const typename Family::Params& gate_up,
                                        const typename Family::Params& down,
                                        const cu::DeviceLimits& limits, int order_threads = 512) {
  return {.order = {.EXPERTS = down.EXPERTS, .TOPK = down.TOPK, .THREADS = order_threads},
          .gather = {.HIDDEN = down.HIDDEN,
                     .TOPK = down.TOPK,
                     .ROW_SCALES = std::is_same_v<Family, kernels::MoePrefillSm90>},
          .join = {.HIDDEN = down.HIDDEN, .TOPK = down.TOPK, .ROUND_EXPERTS = down.ROUND_EXPERTS},
          .gate_up = variant_of<Family>(gate_up),
          .down = variant_of<Family>(down),
          .gate_up_shape = Family::launch_shape({}, gate_up, limits),
          .down_shape = Family::launch_shape({}, down, limits)};
}

struct MoePrefillResult {
  std::vector<float> sums;         ///< [tokens, hidden]
  std::vector<float> activations;  ///< [tokens, topk, inter] as down read them
};

/// Runs a pass. Workspace and output are poisoned first; the guard behind the output must be left
/// alone. Variants must be prepared.
/// @param workspace_tokens  tokens that the workspace is laid out for, not less than there are
MoePrefillResult run_moe_prefill(KernelTarget& target, const MoePrefillVariants& variants,
                                 const MoeExperts& experts, int workspace_tokens);

struct MoePrefillErrors {
  double activations = 0, sums = 0;  ///< relative, Frobenius
};

/// Runs passes that must not differ in a bit, and compares them with the reference: activations
/// with its activations, sums with those that follow from the activations that the kernels made.
/// The tensor core's sums have about 14 bits, which turns the rounding of one activation in some
/// hundreds to the next e4m3 number, a sixteenth away.
MoePrefillErrors check_moe_prefill(KernelTarget& target, const MoePrefillVariants& variants,
                                   const MoeExperts& experts, int repeats);

/// Rows that expert_gather expresses at one scale, from groups whose scales lie up to 2^40 apart:
/// the row's scale is the token's largest, NaN if one is; every number is the same where e4m3 has
/// it at that scale, else within 2^-10 of it.
/// @param params  with ROW_SCALES; the variant must be prepared
void check_row_scales(KernelTarget& target, const kernels::ExpertGatherParams& params);

}  // namespace ingot::test
