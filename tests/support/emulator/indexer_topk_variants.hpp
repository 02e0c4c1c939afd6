#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/emulator/device.hpp"
#include "tests/support/indexer_topk.hpp"

namespace ingot::test::emulator {

/// One variant of indexer_topk, compiled for the emulator.
struct IndexerTopkVariant {
  std::string name;
  int topk = 0, chunk = 0, cluster = 1, page_entries = 0;
  bool map_pages = false;
  /// One launch of as many chunks as the longest row has, or of a cluster; outputs are poisoned
  /// first.
  TopkResult (*run)(const TopkInputs& inputs, int entries, std::uint64_t seed) = nullptr;
};

std::vector<IndexerTopkVariant> indexer_topk_variants();

}  // namespace ingot::test::emulator
