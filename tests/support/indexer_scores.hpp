#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ingot::test {

struct IndexLayout {
  int heads = 64, page_entries = 64, page_bytes = 4352;
};

/// Queries of rows and the paged FP4 keys of their sequences, as indexer_scores reads them.
struct IndexScoreInputs {
  IndexLayout layout;
  int rows = 0, page_stride = 0;
  std::vector<std::uint8_t> q;         ///< [rows, heads, 64]
  std::vector<std::uint8_t> q_scales;  ///< [rows, heads, 4]
  std::vector<std::uint16_t> weights;  ///< [rows, heads] bf16
  std::vector<std::uint8_t> pool;      ///< unused entries are NaN
  std::vector<int> page_table;         ///< [sequences, page_stride]
  std::vector<int> sequences;          ///< [rows]
  std::vector<int> counts;             ///< [rows]
};

/// Rows of the given counts, `rows_together` of a sequence each. Among the keys: zeros, groups far
/// apart in scale, NaN; among the weights negative ones and, in the last row, one NaN.
IndexScoreInputs index_score_inputs(const IndexLayout& layout, const std::vector<int>& counts,
                                    int rows_together, std::uint32_t seed);

struct IndexScores {
  std::vector<float> scores;      ///< [row's keys] of all rows, one after the other
  std::vector<float> magnitudes;  ///< sums of the magnitudes of what is added up
};
/// By the reference engine. Rows of at most `all_taken` keys have none.
IndexScores index_scores_reference(const IndexScoreInputs& inputs, int all_taken);

/// The largest error of [rows, stride] scores relative to the magnitudes; infinity when NaN is in
/// other places, or when anything else than `poison` is behind a row's keys.
double index_scores_error(const IndexScoreInputs& inputs, int all_taken,
                          const std::vector<float>& scores, std::size_t stride, float poison);

}  // namespace ingot::test
