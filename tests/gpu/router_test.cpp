#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/gpu_target.hpp"
#include "tests/support/router_check.hpp"

using namespace ingot;
using kernels::RouterTopk;

TEST_CASE("every router_topk variant agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0;
  for (auto problem : RouterTopk::sample_problems()) {
    for (const int tokens : {1, 13, 250}) {
      problem.tokens = tokens;
      const auto candidates = target->prepare_all<RouterTopk>(problem);
      for (const auto& params : candidates)
        test::check_router_topk(*target, problem, params);
      variants += static_cast<int>(candidates.size());
      target->clear();
    }
  }
  fmt::print("router_topk: {} variants agree, every id equal\n", variants);
}

TEST_CASE("a narrow router is clean", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  for (const bool gate : {true, false}) {
    for (const bool hash : {false, true}) {
      const RouterTopk::Problem problem{
          .hidden = 320, .experts = 32, .tokens = 37, .hash = hash, .gate = gate};
      const auto params = RouterTopk::space(problem, target->limits()).default_candidate();
      target->prepare({test::variant_of<RouterTopk>(params)});
      test::check_router_topk(*target, problem, params);
    }
  }
}
