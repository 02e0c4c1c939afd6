#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/gpu_target.hpp"
#include "tests/support/sampler_check.hpp"

using namespace ingot;
using kernels::SampleTokens;

TEST_CASE("every sample_tokens variant chooses the host's tokens", "[gpu][families]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0, tokens = 0;
  // As many rows at once as the blocks of all variants allow.
  const SampleTokens::Problem problem{.rows = target->limits().sm_count / 32};
  const auto candidates = target->prepare_all<SampleTokens>(problem);
  for (const auto& params : candidates)
    tokens += test::check_sample_tokens(
        *target, {.vocabulary = problem.vocabulary, .rows_at_once = problem.rows}, params);
  variants += static_cast<int>(candidates.size());
  fmt::print("sample_tokens: {} variants agree; {} tokens equal\n", variants, tokens);
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
