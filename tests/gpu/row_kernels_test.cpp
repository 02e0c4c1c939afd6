#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/gpu_target.hpp"
#include "tests/support/row_kernels_check.hpp"

using namespace ingot;
using kernels::Embedding;
using kernels::QNormRope;

TEST_CASE("every embedding variant copies rows and never reads a bad id",
          "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0;
  for (auto problem : Embedding::sample_problems()) {
    problem.tokens = 19;
    const auto candidates = target->prepare_all<Embedding>(problem);
    for (const auto& params : candidates)
      test::check_embedding(*target, problem, params);
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  fmt::print("embedding: {} variants equal the reference\n", variants);
}

TEST_CASE("every q_norm_rope variant agrees with the reference", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int variants = 0, tipped = 0;
  for (auto problem : QNormRope::sample_problems()) {
    problem.tokens = 9;
    const auto candidates = target->prepare_all<QNormRope>(problem);
    for (const auto& params : candidates)
      tipped += test::check_q_norm_rope(*target, problem, params);
    variants += static_cast<int>(candidates.size());
    target->clear();
  }
  fmt::print("q_norm_rope: {} variants agree; {} heads tipped by one unit\n", variants, tipped);
}
