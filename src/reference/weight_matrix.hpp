#pragma once

#include <cstddef>
#include <cstdint>

#include "src/checkpoint/checkpoint.hpp"

namespace ingot::reference {

enum class WeightFormat {
  f32,
  bf16,
  fp8,  ///< e4m3, one E8M0 scale per 128×128
  fp4,  ///< e2m1, two per byte, low nibble first; one E8M0 scale per row and 32 columns
};

/// A range of the rows and columns of one stored [out, in] matrix, still quantised, in the mapped
/// file. A rank's share of a weight is such a range, never a copy. Valid as long as its Checkpoint.
struct WeightMatrix {
  WeightFormat format = WeightFormat::f32;
  const std::byte* data = nullptr;       ///< the whole stored matrix; no alignment is promised
  const std::uint8_t* scales = nullptr;  ///< the whole stored scale matrix (fp8, fp4)
  std::int64_t stored_columns = 0;
  std::int64_t scale_columns = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  int rows = 0;     ///< output dimension of this range
  int columns = 0;  ///< input dimension of this range, a multiple of 16 (fp4: 32)

  /// This range's rows [first, first + count), all its columns.
  WeightMatrix row_range(std::int64_t first, int count) const;
  /// This range's columns [first, first + count), all its rows.
  WeightMatrix column_range(std::int64_t first, int count) const;
};

/// The whole stored matrix.
/// @param scale  the `.scale` tensor of an fp8 or fp4 weight, else nullptr
/// Throws EngineError(unsupported) for a dtype that is not one of the formats, (invalid_argument)
/// for an input dimension that the engine's loops do not take.
WeightMatrix weight_matrix(const TensorView& weight, const TensorView* scale);

/// Rows [first, first + count) of the range as fp32 [count, columns]. Exact: every stored value
/// times its power-of-two scale is a float.
void dequantize_rows(const WeightMatrix& weight, std::int64_t first, int count, float* to);

}  // namespace ingot::reference
