#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/emulator/indexer_topk_variants.hpp"

using namespace ingot::test;

namespace {

/// Of the longest row of a launch.
std::vector<int> lengths(const emulator::IndexerTopkVariant& variant) {
  const int reach = variant.cluster * variant.chunk;
  if (variant.cluster > 1) return {variant.topk + 9, reach - 300};
  return {variant.topk + 9, variant.chunk, 3 * variant.chunk + 17};
}

}  // namespace

TEST_CASE("the indexer top-k template selects as the definition does, run thread by thread",
          "[cpu][kernel]") {
  for (const auto& variant : emulator::indexer_topk_variants()) {
    for (const int entries : lengths(variant)) {
      for (const TopkCase& one :
           topk_cases(entries, variant.topk, variant.chunk, variant.page_entries)) {
        CAPTURE(variant.name, entries, one.name);
        const TopkResult expected = topk_reference(one.inputs, variant.topk, variant.map_pages);
        const TopkResult got = variant.run(one.inputs, entries, 1);
        REQUIRE(got.selected_counts == expected.selected_counts);
        REQUIRE(got.indices == expected.indices);
        REQUIRE(got.nan_counts == expected.nan_counts);
      }
    }
  }
}

TEST_CASE("indexer top-k gives the same bits whichever block comes last", "[cpu][kernel]") {
  for (const auto& variant : emulator::indexer_topk_variants()) {
    const int entries = lengths(variant).back();
    const auto cases = topk_cases(entries, variant.topk, variant.chunk, variant.page_entries);
    for (const std::size_t which : {2, 6}) {  // two rows of few values, one neighbourhood
      CAPTURE(variant.name, cases[which].name);
      const TopkResult first = variant.run(cases[which].inputs, entries, 1);
      for (std::uint64_t seed = 2; seed < 5; ++seed)
        REQUIRE(variant.run(cases[which].inputs, entries, seed) == first);
    }
  }
}
