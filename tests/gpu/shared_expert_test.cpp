#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/gpu_target.hpp"
#include "tests/support/shared_expert_check.hpp"

using namespace ingot;
using kernels::SharedExpertFew;

TEST_CASE("every shared_expert_few variant agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0;
  for (auto problem : SharedExpertFew::sample_problems()) {
    const auto candidates = target->prepare_all<SharedExpertFew>(problem);
    for (const auto& params : candidates) {
      test::check_shared_expert_few(*target, problem, params);
      if (problem.tokens == 4) {  // more room than tokens
        problem.tokens = 3;
        test::check_shared_expert_few(*target, problem, params);
      }
    }
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  fmt::print("shared_expert_few: {} variants agree, every id equal\n", variants);
}

TEST_CASE("a narrow shared expert is clean", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  for (const bool hash : {false, true}) {
    const SharedExpertFew::Problem problem{
        .hidden = 512, .inter = 256, .experts = 32, .tokens = 3, .hash = hash};
    const auto params = SharedExpertFew::space(problem, target->limits()).default_candidate();
    target->prepare({test::variant_of<SharedExpertFew>(params)});
    test::check_shared_expert_few(*target, problem, params);
  }
}
