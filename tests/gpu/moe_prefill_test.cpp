#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "kernel_templates/moe_prefill.space.hpp"
#include "kernel_templates/moe_prefill_sm90.space.hpp"
#include "tests/support/gpu_target.hpp"
#include "tests/support/moe_prefill_check.hpp"
#include "tests/support/notes.hpp"

using namespace ingot;
using kernels::MoePrefill;
using kernels::MoePrefillSm90;
using test::MoeExperts;
using test::MoePrefillVariants;
using test::MoeRouting;

namespace {

struct Batch {
  int tokens;
  MoeRouting routing;
  bool nan = false;
};

/// Variants of both products, the i-th extreme of the one with the i-th of the other.
template <class Family>
std::vector<MoePrefillVariants> variants_for(const test::MoeShape& shape, bool whole_experts,
                                             const cu::DeviceLimits& limits) {
  const auto of = [&](bool down) {
    return Family::space({.inter = shape.inter,
                          .hidden = shape.hidden,
                          .experts = shape.experts,
                          .topk = shape.topk,
                          .whole_experts = whole_experts,
                          .down = down},
                         limits)
        .extremes();
  };
  const auto gate_up = of(false), down = of(true);
  std::vector<MoePrefillVariants> variants;
  for (std::size_t i = 0; i < std::min(gate_up.size(), down.size()); ++i)
    variants.push_back(test::moe_prefill_variants<Family>(gate_up[i], down[i], limits));
  return variants;
}

template <class Family>
void check_batches(const test::MoeShape& shape, bool whole_experts, int scale_spread,
                   std::size_t most_variants, const std::vector<Batch>& batches) {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  if (!Family::runs_on(target->limits())) {
    fmt::print("skipped: {} is not for this card\n", Family::kStem);
    return;
  }
  auto variants = variants_for<Family>(shape, whole_experts, target->limits());
  if (variants.size() > most_variants) variants.resize(most_variants);
  std::vector<jit::Variant> all;
  for (const auto& v : variants)
    for (const auto& variant : v.all())
      if (std::find(all.begin(), all.end(), variant) == all.end()) all.push_back(variant);
  test::note(0, "compiling");
  target->prepare(all);
  test::MoePrefillErrors worst;
  for (const Batch& batch : batches) {
    test::MoeShape at = shape;
    at.tokens = batch.tokens;
    MoeExperts experts = test::random_moe(at, batch.routing, scale_spread, 7);
    if (batch.nan) test::poison(experts, batch.tokens / 2, 130);
    for (const auto& v : variants) {
      CAPTURE(batch.tokens, static_cast<int>(batch.routing), jit::describe(v.gate_up));
      test::note(0, "launching");
      const auto errors = test::check_moe_prefill(*target, v, experts, 3);
      worst.activations = std::max(worst.activations, errors.activations);
      worst.sums = std::max(worst.sums, errors.sums);
    }
  }
  fmt::print(
      "{}, intermediate {}, hidden {}: {} variants agree; worst relative errors: "
      "activations {:.1e}, sums {:.1e}\n",
      Family::kStem, shape.inter, shape.hidden, variants.size(), worst.activations, worst.sums);
}

}  // namespace

TEST_CASE("moe_prefill_sm90 agrees with the reference, whole experts",
          "[gpu][families][moe_prefill]") {
  check_batches<MoePrefillSm90>({.hidden = 1024, .inter = 512, .experts = 32}, true, 5, 6,
                                {{1, MoeRouting::uniform},
                                 {77, MoeRouting::leave_out},
                                 {300, MoeRouting::uniform, true},
                                 {610, MoeRouting::uniform}});
}
TEST_CASE(
    "moe_prefill_sm90 agrees with the reference where an expert has all tokens, a share of it",
    "[gpu][families][moe_prefill]") {
  check_batches<MoePrefillSm90>({.hidden = 1024, .inter = 256, .experts = 32}, false, 5, 2,
                                {{129, MoeRouting::same}, {333, MoeRouting::first_full, true}});
}
TEST_CASE("moe_prefill_sm90 agrees with the reference where scales lie 2^20 apart",
          "[gpu][families][moe_prefill]") {
  check_batches<MoePrefillSm90>({.hidden = 512, .inter = 256, .experts = 32}, true, 21, 1,
                                {{150, MoeRouting::uniform, true}});
}

TEST_CASE("moe_prefill agrees with the reference", "[gpu][families][moe_prefill]") {
  check_batches<MoePrefill>({.hidden = 1024, .inter = 256, .experts = 32}, true, 21, 3,
                            {{77, MoeRouting::leave_out}, {333, MoeRouting::first_full, true}});
}
TEST_CASE("expert_gather loses next to nothing where a row gets one scale",
          "[gpu][families][moe_prefill]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  for (const int hidden : {512, 4096}) {
    const kernels::ExpertGatherParams params{.HIDDEN = hidden, .ROW_SCALES = true};
    target->prepare({test::variant_of<kernels::ExpertGather>(params)});
    test::check_row_scales(*target, params);
  }
}
