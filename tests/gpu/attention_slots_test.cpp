#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/attention_slots_check.hpp"
#include "tests/support/gpu_target.hpp"

using namespace ingot;
using kernels::AttentionSlots;

TEST_CASE("every attention_slots variant lists the keys of each row", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0;
  for (auto problem : AttentionSlots::sample_problems()) {
    const auto candidates = target->prepare_all<AttentionSlots>(problem);
    for (const auto& params : candidates) {
      for (const int slots : {8195, 63, 0}) {
        problem.hca_slots = slots;
        test::check_attention_slots(
            *target, problem, params,
            problem.wide ? test::wide_rows(problem.ring) : test::edge_rows());
      }
      test::check_attention_slots(*target, problem, params, {{127, 3}});
    }
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  fmt::print("attention_slots: {} variants list every key\n", variants);
}
