#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/gpu_target.hpp"
#include "tests/support/linear_check.hpp"
#include "tests/support/skip.hpp"

using namespace ingot;
using kernels::Bf16Linear;
using kernels::GroupedLinear;

TEST_CASE("bf16_linear agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0;
  const Bf16Linear::Problem problems[] = {
      {.rows = {64, 200, 8}, .cols = 320, .tokens = 1},
      {.rows = {1024, 1024, 256, 256, 64}, .cols = 4096, .tokens = 5},
      {.rows = {512, 512}, .cols = 4096, .tokens = 61},
      {.rows = {1024, 1024, 256, 256, 64}, .cols = 4096, .tokens = 5, .beside = true},
      {.rows = {512, 512}, .cols = 4096, .tokens = 61, .beside = true},
      {.rows = {8, 1500}, .cols = 1024, .tokens = 130},
      {.rows = {256}, .cols = 4096, .tokens = 16},
  };
  for (const auto& problem : problems) {
    const auto candidates = target->prepare_all<Bf16Linear>(problem, true);
    for (const auto& params : candidates)
      test::check_bf16_linear(*target, problem, params);
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  fmt::print("bf16_linear: {} variants agree\n", variants);
}

TEST_CASE("bf16_linear_sm90 agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  if (!kernels::Bf16LinearSm90::runs_on(target->limits()) && test::skip("no sm_90")) return;
  int variants = 0;
  const Bf16Linear::Problem problems[] = {
      {.rows = {64, 132, 8, 8}, .cols = 320, .tokens = 4091},
      {.rows = {8, 8, 8, 8, 8}, .cols = 4096, .tokens = 801},
      {.rows = {64, 300, 200, 132, 8}, .cols = 1024, .tokens = 513},
  };
  for (const auto& problem : problems) {
    const auto candidates = target->prepare_all<kernels::Bf16LinearSm90>(problem, true);
    REQUIRE_FALSE(candidates.empty());
    for (const auto& params : candidates)
      test::check_bf16_linear(*target, problem, params);
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  fmt::print("bf16_linear_sm90: {} variants agree\n", variants);
}

TEST_CASE("grouped_linear agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0;
  const GroupedLinear::Problem problems[] = {
      {.groups = 8, .group_rows = 1024, .cols = 4096, .tokens = 1},
      {.groups = 1, .group_rows = 1024, .cols = 4096, .tokens = 13},
      {.groups = 3, .group_rows = 128, .cols = 384, .tokens = 61},
      {.groups = 2, .group_rows = 256, .cols = 1024, .tokens = 250},
  };
  for (const auto& problem : problems) {
    const auto candidates = target->prepare_all<GroupedLinear>(problem, true);
    for (const auto& params : candidates)
      test::check_grouped_linear(*target, problem, params);
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  fmt::print("grouped_linear: {} variants agree\n", variants);
}

TEST_CASE("grouped_linear_few agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  if (!kernels::GroupedLinearFew::runs_on(target->limits()) && test::skip("no sm_90")) return;
  int variants = 0;
  const kernels::GroupedLinearProblem problems[] = {
      {.groups = 8, .group_rows = 1024, .cols = 4096, .tokens = 1},
      {.groups = 4, .group_rows = 1024, .cols = 4096, .tokens = 2},
      {.groups = 1, .group_rows = 1024, .cols = 4096, .tokens = 4},
      {.groups = 3, .group_rows = 128, .cols = 384, .tokens = 5},
      {.groups = 2, .group_rows = 1024, .cols = 4096, .tokens = 13},
  };
  for (const auto& problem : problems) {
    const auto candidates = target->prepare_all<kernels::GroupedLinearFew>(problem, true);
    REQUIRE_FALSE(candidates.empty());
    for (const auto& params : candidates)
      test::check_grouped_linear(*target, problem, params);
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  fmt::print("grouped_linear_few: {} variants agree\n", variants);
}

TEST_CASE("grouped_linear_sm90 agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  if (!kernels::GroupedLinearSm90::runs_on(target->limits()) && test::skip("no sm_90")) return;
  int variants = 0;
  const kernels::GroupedLinearProblem problems[] = {
      {.groups = 2, .group_rows = 128, .cols = 4096, .tokens = 700},
      {.groups = 3, .group_rows = 128, .cols = 384, .tokens = 1025},
      {.groups = 1, .group_rows = 128, .cols = 8192, .tokens = 512},
  };
  for (const auto& problem : problems) {
    const auto candidates = target->prepare_all<kernels::GroupedLinearSm90>(problem, true);
    for (const auto& params : candidates)
      test::check_grouped_linear(*target, problem, params);
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  CHECK(variants > 0);
  fmt::print("grouped_linear_sm90: {} variants agree\n", variants);
}

TEST_CASE("narrow linears of bf16 inputs are clean", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  const Bf16Linear::Problem problem{.rows = {64, 132, 8}, .cols = 320, .tokens = 21};
  for (const Bf16Linear::Params& params :
       {Bf16Linear::Params{.COLS = 320, .TOKENS = 32, .STAGES = 3, .SPLIT_K = 4},
        Bf16Linear::Params{.COLS = 320, .TOKENS = 16, .STAGES = 2, .SPLIT_K = 3, .LAST_SUMS = true},
        Bf16Linear::Params{.COLS = 320, .TOKENS = 8, .STAGES = 3, .X_RESIDENT = true}}) {
    target->prepare({test::variant_of<Bf16Linear>(params)});
    test::check_bf16_linear(*target, problem, params);
  }
  const GroupedLinear::Problem grouped{.groups = 2, .group_rows = 128, .cols = 384, .tokens = 19};
  const GroupedLinear::Params params{.COLS = 384, .TOKENS = 32, .STAGES = 2, .SPLIT_K = 2};
  target->prepare({test::variant_of<GroupedLinear>(params)});
  test::check_grouped_linear(*target, grouped, params);
  if (!kernels::GroupedLinearFew::runs_on(target->limits()) && test::skip("no sm_90")) return;
  const GroupedLinear::Problem few{.groups = 1, .group_rows = 128, .cols = 1152, .tokens = 13};
  const kernels::GroupedLinearFew::Params rings{.COLS = 1152, .STAGES = 2, .WARPS = 8};
  target->prepare({test::variant_of<kernels::GroupedLinearFew>(rings)});
  test::check_grouped_linear(*target, few, rings);
}
