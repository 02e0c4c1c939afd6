#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/gpu_target.hpp"
#include "tests/support/hyper_connection_check.hpp"

using namespace ingot;
using kernels::HcPost;
using kernels::HcPre;

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

}  // namespace

TEST_CASE("every hc_pre variant agrees with the reference", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0, worst = 0;
  for (auto problem : HcPre::sample_problems()) {
    for (const int tokens : {1, 37}) {
      problem.tokens = tokens;
      check_all<HcPre>(*target, problem, test::check_hc_pre, variants, worst);
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
