#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/gpu_target.hpp"
#include "tests/support/hyper_connection_check.hpp"

using namespace ingot;
using kernels::HcPost;
using kernels::HcPre;
using kernels::HcPreProblem;
using kernels::HcPreWide;

namespace {

template <class Family, class Check>
void check_all(test::GpuTarget& target, const typename Family::Problem& problem, Check check,
               int& variants, int& worst) {
  const auto candidates = target.prepare_all<Family>(problem);
  for (const auto& params : candidates)
    worst = std::max(worst, check(target, problem, params));
  variants += static_cast<int>(candidates.size());
  target.clear();
}

/// Either family's.
constexpr auto check_pre = [](test::GpuTarget& target, const HcPreProblem& problem,
                              const auto& params) {
  return test::check_hc_pre(target, problem, params);
};

}  // namespace

TEST_CASE("every hc_pre variant agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0, worst = 0;
  const HcPreProblem problems[] = {{.quantize = true},
                                   {.after_sublayer = true, .quantize = true},
                                   {.head = true, .after_sublayer = true},
                                   {.head = true},
                                   {.hidden = 7168, .after_sublayer = true, .quantize = true}};
  for (HcPreProblem problem : problems) {
    for (const int tokens : {1, 12, 37, 100}) {
      problem.tokens = tokens;
      check_all<HcPre>(*target, problem, check_pre, variants, worst);
    }
  }
  fmt::print("hc_pre: {} variants agree; at most {} unit(s) in the last place of bf16\n", variants,
             worst);
}

TEST_CASE("hc_pre takes more tokens than a batch", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  const HcPre::Problem problem{.tokens = 700, .after_sublayer = true, .quantize = true};
  const auto params = HcPre::space(problem, target->limits()).default_candidate();
  target->prepare({test::variant_of<HcPre>(params)});
  test::check_hc_pre(*target, problem, params);
}

TEST_CASE("every hc_pre_wide variant agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0, worst = 0;
  // Variants are those of a pass; fewer tokens show the same, since blocks know nothing of others.
  const auto check_some = [](test::GpuTarget& card, HcPreProblem problem, const auto& params) {
    problem.tokens = 133;
    return test::check_hc_pre(card, problem, params);
  };
  for (const bool after : {false, true}) {
    const HcPreProblem narrow{
        .hidden = 128, .tokens = 2603, .after_sublayer = after, .quantize = true};
    check_all<HcPreWide>(*target, narrow, check_pre, variants, worst);
    const HcPreProblem odd{.hidden = 1152,
                           .tokens = HcPreWide::kLeastTokens,
                           .after_sublayer = after,
                           .quantize = true};
    check_all<HcPreWide>(*target, odd, check_some, variants, worst);
  }
  fmt::print("hc_pre_wide: {} variants agree; at most {} unit(s) in the last place of bf16\n",
             variants, worst);
}

TEST_CASE("hc_pre_wide agrees with the reference at the model's width", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  for (const int pass : {2048, 4096}) {
    for (const bool after : {false, true}) {
      HcPreProblem problem{.tokens = pass, .after_sublayer = after, .quantize = true};
      const auto candidates = target->prepare_all<HcPreWide>(problem);
      REQUIRE_FALSE(candidates.empty());
      problem.tokens = 69;  // some of them: blocks know nothing of each other
      for (const auto& params : candidates)
        test::check_hc_pre(*target, problem, params);
      target->clear();
    }
  }
}

TEST_CASE("hyper-connections of a narrow model are clean", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  for (const bool head : {false, true}) {
    const HcPre::Problem problem{
        .hidden = 256, .tokens = 37, .head = head, .after_sublayer = true, .quantize = !head};
    const auto params = HcPre::space(problem, target->limits()).default_candidate();
    target->prepare({test::variant_of<HcPre>(params)});
    test::check_hc_pre(*target, problem, params);
  }
  const HcPost::Problem problem{.hidden = 256, .tokens = 5};
  const auto params = HcPost::space(problem, target->limits()).default_candidate();
  target->prepare({test::variant_of<HcPost>(params)});
  test::check_hc_post(*target, problem, params);
}

TEST_CASE("every hc_post variant agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0, worst = 0;
  for (auto problem : HcPost::sample_problems()) {
    problem.tokens = 7;
    check_all<HcPost>(*target, problem, test::check_hc_post, variants, worst);
  }
  fmt::print("hc_post: {} variants agree; at most {} unit(s) in the last place of bf16\n", variants,
             worst);
}
