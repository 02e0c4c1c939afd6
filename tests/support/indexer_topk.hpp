#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot::test {

/// Rows of scores for indexer_topk, and a page table to map the selected entries with.
struct TopkInputs {
  int rows = 0;
  int score_stride = 0;
  std::vector<float> scores;    ///< [rows, score_stride]; NaN behind a row's count
  std::vector<int> counts;      ///< [rows]
  std::vector<int> sequences;   ///< [rows]
  std::vector<int> page_table;  ///< [sequences, page_stride]
  int page_stride = 0;
  int page_entries = 0;
};

struct TopkResult {
  std::vector<int> indices;               ///< [rows, topk]
  std::vector<int> selected_counts;       ///< [rows]
  std::vector<std::uint32_t> nan_counts;  ///< [rows]

  bool operator==(const TopkResult&) const = default;
};

struct TopkCase {
  std::string name;
  TopkInputs inputs;
};

/// Rows of up to `entries` scores of many kinds and lengths: none, one, topk and one more, chunk
/// ends, three quarters, the whole; all equal, few values, rising, falling, NaN, infinities, both
/// zeros, denormals.
/// @param chunk  scores that a block of the variant under test takes
std::vector<TopkCase> topk_cases(int entries, int topk, int chunk, int page_entries);

/// By the definition; entries as slots of a paged pool with `map_pages`.
TopkResult topk_reference(const TopkInputs& inputs, int topk, bool map_pages);

}  // namespace ingot::test
