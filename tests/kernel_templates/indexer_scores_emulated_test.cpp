#include <bit>
#include <catch2/catch.hpp>

#include "tests/support/emulator/indexer_scores_variants.hpp"

using namespace ingot::test;

TEST_CASE("the indexer's scores agree with the reference, run thread by thread", "[cpu][kernel]") {
  for (const auto& variant : emulator::indexer_scores_variants()) {
    const int tile = variant.tile, together = variant.rows_together;
    std::vector<std::vector<int>> batches{{1}, {3 * tile + 5}, {2 * tile}};
    std::vector<int> mixed;  // lengths of neighbouring rows of a sequence differ; some are empty
    for (const int keys : {0, 2 * tile + 3, 9, 0, 0, tile, 7, 3 * tile - 1, 0})
      for (int r = 0; r < together; ++r)
        mixed.push_back(keys == 0 || r == 2 ? 0 : keys + r);
    batches.push_back(mixed);
    for (const auto& counts : batches) {
      const auto inputs = index_score_inputs(variant.layout, counts, together, 7);
      const auto stride = static_cast<std::size_t>(3 * tile + 40);
      for (const int all_taken : {0, 9}) {
        for (const unsigned blocks : {1U, 4U}) {
          CAPTURE(variant.name, counts, all_taken, blocks);
          const auto got = variant.run(inputs, all_taken, stride, blocks, 1);
          REQUIRE(index_scores_error(inputs, all_taken, got, stride, -77.0F) <= variant.tolerance);
        }
      }
    }
  }
}

TEST_CASE("the indexer's scores have the same bits however their keys are dealt to blocks",
          "[cpu][kernel]") {
  for (const auto& variant : emulator::indexer_scores_variants()) {
    CAPTURE(variant.name);
    std::vector<int> counts(static_cast<std::size_t>(2 * variant.rows_together),
                            2 * variant.tile + 1);
    const auto inputs = index_score_inputs(variant.layout, counts, variant.rows_together, 8);
    const auto stride = static_cast<std::size_t>(2 * variant.tile + 4);
    auto bits = [&](unsigned blocks, std::uint64_t seed) {
      std::vector<std::uint32_t> words;
      for (const float score : variant.run(inputs, 0, stride, blocks, seed))
        words.push_back(std::bit_cast<std::uint32_t>(score));
      return words;
    };
    const auto first = bits(1, 1);
    REQUIRE(bits(3, 2) == first);
    REQUIRE(bits(7, 3) == first);
  }
}
