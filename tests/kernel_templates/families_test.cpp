#include <catch2/catch.hpp>
#include <set>

#include "kernel_templates/family.hpp"
#include "kernel_templates/grouped_linear_few.space.hpp"
#include "kernel_templates/indexer_topk.space.hpp"
#include "kernel_templates/rms_norm.space.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/compile_job.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

TEST_CASE("every family's template is embedded and stands alone", "[cpu][jit][families]") {
  const auto tree = kernels::embedded_templates();
  for (const kernels::Family& family : kernels::families()) {
    CAPTURE(family.stem);
    const auto bundle = tree.bundle(jit::template_name(family.stem));
    REQUIRE(bundle);
    std::set<std::string> headers;
    for (const auto& header : bundle->headers)
      headers.insert(header.name);
    CHECK(headers.contains(family.stem + ".args.h"));
    CHECK(headers.contains(family.stem + ".params.def"));
    CHECK_FALSE(family.defaults.empty());
    // One kernel per unit, by the family's own name.
    const std::string& text = bundle->main.text;
    const std::size_t first = text.find("extern \"C\"");
    REQUIRE(first != std::string::npos);
    CHECK(text.find("extern \"C\"", first + 1) == std::string::npos);
    CHECK(text.find(family.stem + "(", first) != std::string::npos);
  }
}

TEST_CASE("the embedded templates are the files of the source tree", "[cpu][jit][families]") {
  const auto on_disk = jit::SourceTree::read_directory(
      test::golden_dir().parent_path().parent_path() / "kernel_templates");
  REQUIRE(on_disk);
  const auto embedded = kernels::embedded_templates();
  for (const std::string& name : embedded.names()) {
    CAPTURE(name);
    REQUIRE(on_disk->find(name) != nullptr);
    CHECK(*on_disk->find(name) == *embedded.find(name));
  }
}

TEST_CASE("every family has a legal default on every card that it runs on",
          "[cpu][jit][families]") {
  for (const kernels::Family& family : kernels::families()) {
    for (const jit::Arch& arch : jit::known_archs()) {
      const auto limits = cu::limits_of_arch(arch.name);
      REQUIRE(limits);
      if (!family.runs_on(*limits)) continue;
      for (const kernels::VariantSet& set : family.samples(*limits)) {
        CAPTURE(family.stem, arch.name);
        REQUIRE_FALSE(set.candidates.empty());
        REQUIRE_FALSE(set.extremes.empty());
        CHECK(set.candidates.front() == set.extremes.front());
        for (const jit::Variant& variant : set.candidates) {
          REQUIRE(variant.params.size() == family.defaults.size());
        }
      }
    }
  }
}

TEST_CASE("wo_a of few tokens streams whole columns while input weighs less than weights",
          "[cpu][families]") {
  using kernels::GroupedLinearFew;
  const auto h200 = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto chosen = [&](int groups, int tokens) {
    return GroupedLinearFew::is_default({.groups = groups, .tokens = tokens}, h200);
  };
  CHECK(chosen(8, 1));
  CHECK(chosen(8, 16));
  CHECK_FALSE(chosen(8, 32));  // no room for the ring
  CHECK(chosen(4, 8));
  CHECK_FALSE(chosen(4, 16));
  CHECK(chosen(1, 4));
  CHECK_FALSE(chosen(1, 8));
  CHECK_FALSE(GroupedLinearFew::is_default({.groups = 8, .tokens = 1},
                                           value_or_throw(cu::limits_of_arch("sm_80"))));
  // Where a block has half of the memory, 16 tokens go in two tiles, and weights are read twice.
  const auto small = value_or_throw(cu::limits_of_arch("sm_120a"));
  const kernels::GroupedLinearProblem most{.groups = 8, .tokens = 16};
  CHECK(GroupedLinearFew::space(most, small).default_candidate().TOKENS == 8);
  CHECK_FALSE(GroupedLinearFew::is_default(most, small));
}

TEST_CASE("rms_norm launches a block for every group of rows", "[cpu][families]") {
  const auto shape = kernels::RmsNorm::launch_shape({.hidden = 4096, .rows = 7},
                                                    {.THREADS_PER_ROW = 128, .ROWS_PER_BLOCK = 2});
  CHECK(shape.grid == cu::Dim3{4, 1, 1});
  CHECK(shape.block == cu::Dim3{128, 2, 1});
}

TEST_CASE("top-k deals few long rows to clusters where the card has them", "[cpu][families]") {
  using kernels::IndexerTopk;
  const auto hopper = cu::limits_of_arch("sm_90a"), ampere = cu::limits_of_arch("sm_80");
  REQUIRE(hopper);
  REQUIRE(ampere);
  const auto usual = [](const IndexerTopk::Problem& problem, const cu::DeviceLimits& limits) {
    const auto space = IndexerTopk::space(problem, limits);
    const auto params = space.default_candidate();
    CHECK_FALSE(space.rejection(params));
    return params;
  };
  for (const int rows : {1, 16}) {
    const IndexerTopk::Problem problem{.rows = rows, .entries = 32768};
    const auto params = usual(problem, *hopper);
    const auto shape = IndexerTopk::launch_shape(problem, params);
    CHECK(shape.grid == cu::Dim3{8, static_cast<unsigned>(rows), 1});
    CHECK(shape.cluster == cu::Dim3{8, 1, 1});
    CHECK(IndexerTopk::candidate_bytes(problem, params) == 0);
    CHECK(usual(problem, *ampere).CLUSTER == 1);
  }
  CHECK(usual({.rows = 1, .entries = 131072}, *hopper).CLUSTER == 8);
  // More rows than clusters of eight have room for, still where each takes several turns.
  CHECK(usual({.rows = 64, .entries = 32768}, *hopper).CLUSTER == 2);
  CHECK(usual({.rows = 256, .entries = 32768}, *hopper).CLUSTER == 2);
  CHECK(usual({.rows = 8, .entries = 8192}, *hopper).CLUSTER == 4);
  CHECK(usual({.rows = 64, .entries = 8192}, *hopper).CLUSTER == 2);
  CHECK(usual({.rows = 256, .entries = 8192}, *hopper).THREADS == 256);
  CHECK(usual({.rows = 4096, .entries = 1024}, *hopper).THREADS == 256);
  CHECK(usual({.rows = 16, .entries = 12288}, *hopper).CLUSTER == 1);
  // Too long, too short, or a number that is no power of two.
  CHECK(usual({.rows = 1, .entries = 262144}, *hopper).CLUSTER == 1);
  CHECK(usual({.rows = 1, .entries = 2048}, *hopper).CLUSTER == 1);
  CHECK(usual({.rows = 1, .entries = 32768, .topk = 500}, *hopper).CLUSTER == 1);
}
