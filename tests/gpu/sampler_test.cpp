#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/gpu_target.hpp"
#include "tests/support/sampler_check.hpp"

using namespace ingot;
using kernels::SampleTokens;

TEST_CASE("sample_tokens chooses the host's tokens", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  const SampleTokens::Problem problem{.rows = target->limits().sm_count / 32};
  const auto params = SampleTokens::space(problem, target->limits()).default_candidate();
  target->prepare({test::variant_of<SampleTokens>(params)});
  const int tokens = test::check_sample_tokens(
      *target, {.vocabulary = problem.vocabulary, .rows_at_once = problem.rows}, params);
  fmt::print("sample_tokens: {} tokens equal\n", tokens);
}

TEST_CASE("every sample_tokens variant chooses the host's tokens", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int tokens = 0;
  // As many rows at once as the blocks of all variants allow; every seventh sequence, because the
  // host takes some 20 ms for a token.
  const SampleTokens::Problem problem{.rows = target->limits().sm_count / 32};
  const auto candidates = target->prepare_all<SampleTokens>(problem);
  for (const auto& params : candidates)
    tokens += test::check_sample_tokens(
        *target,
        {.vocabulary = problem.vocabulary, .rows_at_once = problem.rows, .steps = 1, .every = 7},
        params);
  fmt::print("sample_tokens: {} variants agree; {} tokens equal\n", candidates.size(), tokens);
}

TEST_CASE("sampling from a small vocabulary is clean", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  for (const SampleTokens::Params& params : {SampleTokens::Params{.THREADS = 256, .SPLIT = 1},
                                             SampleTokens::Params{.THREADS = 256, .SPLIT = 4}}) {
    target->prepare({test::variant_of<SampleTokens>(params)});
    test::check_sample_tokens(*target, {.vocabulary = 4099, .steps = 1, .every = 5}, params);
  }
}
