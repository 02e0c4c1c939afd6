#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>

#include "tests/support/gpu_target.hpp"
#include "tests/support/row_kernels_check.hpp"

using namespace ingot;
using kernels::Embedding;
using kernels::ExpertSum;
using kernels::QNormRope;
using kernels::SwigluQuant;

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

TEST_CASE("every swiglu_quant variant agrees with the reference", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int checks = 0, tipped = 0;
  for (auto problem : {SwigluQuant::Problem{.inter = 128, .tokens = 1},
                       SwigluQuant::Problem{.inter = 256, .tokens = 1},
                       SwigluQuant::Problem{.inter = 640, .tokens = 13},
                       SwigluQuant::Problem{.inter = 2048, .tokens = 19}}) {
    for (const auto& params : target->prepare_all<SwigluQuant>(problem)) {
      for (const float limit : {10.0F, std::numeric_limits<float>::infinity()}) {
        tipped += test::check_swiglu_quant(*target, problem, params, limit);
        ++checks;
      }
    }
    target->clear();
  }
  fmt::print("swiglu_quant: {} launches agree; {} codes tipped to a neighbour\n", checks, tipped);
}

TEST_CASE("every expert_sum variant rounds the sum once", "[gpu][families][sanitize]") {
  auto target = test::GpuTarget::open_or_skip();
  if (!target) return;
  int checks = 0;
  for (auto problem :
       {ExpertSum::Problem{.tokens = 1}, ExpertSum::Problem{.hidden = 264, .tokens = 7}}) {
    for (const auto& params : target->prepare_all<ExpertSum>(problem)) {
      test::check_expert_sum(*target, problem, params);
      ++checks;
    }
    target->clear();
  }
  fmt::print("expert_sum: {} variants and shapes equal the reference\n", checks);
}
