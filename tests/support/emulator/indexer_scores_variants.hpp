#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/emulator/device.hpp"
#include "tests/support/indexer_scores.hpp"

namespace ingot::test::emulator {

/// One variant of a family that scores index keys, compiled for the emulator.
struct IndexerScoresVariant {
  std::string name;
  IndexLayout layout;
  int rows_together = 1, tile = 0;
  double tolerance = 0;
  /// One launch of `blocks` blocks into [rows, stride] scores that are -77 before.
  std::vector<float> (*run)(const IndexScoreInputs& inputs, int all_taken, std::size_t stride,
                            unsigned blocks, std::uint64_t seed) = nullptr;
};

std::vector<IndexerScoresVariant> indexer_scores_variants();

}  // namespace ingot::test::emulator
