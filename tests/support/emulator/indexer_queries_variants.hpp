#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/emulator/device.hpp"
#include "tests/support/indexer_queries.hpp"

namespace ingot::test::emulator {

/// One variant of indexer_queries, compiled for the emulator.
struct IndexerQueriesVariant {
  std::string name;
  int heads = 0;
  IndexQueries (*run)(const IndexQueryInputs& inputs, std::uint64_t seed) = nullptr;
};

std::vector<IndexerQueriesVariant> indexer_queries_variants();

}  // namespace ingot::test::emulator
