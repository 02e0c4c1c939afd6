#include <catch2/catch.hpp>

#include "tests/support/emulator/indexer_queries_variants.hpp"

using namespace ingot::test;

TEST_CASE("the indexer's queries have the reference's bytes, run thread by thread",
          "[cpu][kernel]") {
  for (const auto& variant : emulator::indexer_queries_variants()) {
    CAPTURE(variant.name);
    const auto inputs = index_query_inputs(5, variant.heads);
    const auto expected = index_queries_reference(inputs);
    auto got = variant.run(inputs, 1);
    clear_codes_of_nan(got);
    REQUIRE(got.scales == expected.scales);
    REQUIRE(got.codes == expected.codes);
    REQUIRE(got.weights == expected.weights);
  }
}
