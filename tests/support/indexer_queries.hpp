#pragma once

#include <cstdint>
#include <vector>

namespace ingot::test {

/// Rows of index queries as the linear leaves them, and what becomes of them.
struct IndexQueryInputs {
  int rows = 0, heads = 0, q_stride = 0;
  std::vector<std::uint16_t> q;          ///< [rows, q_stride] bf16
  std::vector<std::uint16_t> projected;  ///< [rows, heads] bf16
  std::vector<float> frequencies;        ///< [32]
  std::vector<int> positions;            ///< [rows]
  float weight_scale = 0;
};

struct IndexQueries {
  std::vector<std::uint8_t> codes, scales;
  std::vector<std::uint16_t> weights;

  bool operator==(const IndexQueries&) const = default;
};

/// Ordinary heads, zeros, far-apart magnitudes, one NaN; positions up to a million.
IndexQueryInputs index_query_inputs(int rows, int heads);
/// By the reference engine's functions. Codes of a group that holds NaN, whose scale is 255, are 0.
IndexQueries index_queries_reference(const IndexQueryInputs& inputs);
/// The same convention for a result: NaN has no code.
void clear_codes_of_nan(IndexQueries& queries);

}  // namespace ingot::test
