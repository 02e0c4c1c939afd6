#include "src/reference/weight_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/reference/kernels.hpp"
#include "src/reference/lanes.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::reference {
namespace {

/// Rows and columns of an FP8 weight that share a scale.
constexpr int kFp8Block = 128;

void dequantize_fp8_row(const WeightMatrix& weight, std::int64_t row, float* to) {
  const std::byte* from = weight.data + row * weight.stored_columns;
  const std::uint8_t* scales = weight.scales + row / kFp8Block * weight.scale_columns;
  const std::int64_t end = weight.first_column + weight.columns;
  for (std::int64_t column = weight.first_column; column < end;) {
    const std::int64_t block = column / kFp8Block;
    const int width = static_cast<int>(std::min((block + 1) * kFp8Block, end) - column);
    convert_e4m3(from + column, width, e8m0_value(scales[block]), to);
    column += width;
    to += width;
  }
}

}  // namespace

WeightMatrix WeightMatrix::row_range(std::int64_t first, int count) const {
  WeightMatrix range = *this;
  range.first_row += first;
  range.rows = count;
  return range;
}

WeightMatrix WeightMatrix::column_range(std::int64_t first, int count) const {
  WeightMatrix range = *this;
  range.first_column += first;
  range.columns = count;
  return range;
}

WeightMatrix weight_matrix(const TensorView& weight, const TensorView* scale) {
  WeightMatrix matrix;
  matrix.data = weight.bytes.data();
  matrix.rows = static_cast<int>(weight.shape.at(0));
  matrix.stored_columns = weight.shape.at(1);
  switch (weight.dtype) {
    case Dtype::f32:
      matrix.format = WeightFormat::f32;
      break;
    case Dtype::bf16:
      matrix.format = WeightFormat::bf16;
      break;
    case Dtype::f8_e4m3:
      matrix.format = WeightFormat::fp8;
      break;
    case Dtype::i8:
      matrix.format = WeightFormat::fp4;
      matrix.stored_columns *= 2;
      break;
    default:
      throw EngineError(ErrorCode::unsupported,
                        fmt::format("reading weight {}: dtype {} is not a weight format",
                                    weight.name, dtype_name(weight.dtype)));
  }
  matrix.columns = static_cast<int>(matrix.stored_columns);
  if (scale != nullptr) {
    matrix.scales = reinterpret_cast<const std::uint8_t*>(scale->bytes.data());
    matrix.scale_columns = scale->shape.at(1);
  }
  const int unit = matrix.format == WeightFormat::fp4 ? kFp4Group : kLanes;
  if (matrix.columns % unit != 0) {
    throw EngineError(ErrorCode::invalid_argument,
                      fmt::format("reading weight {}: input dimension {} is not a multiple of {}",
                                  weight.name, matrix.columns, unit));
  }
  return matrix;
}

void dequantize_rows(const WeightMatrix& weight, std::int64_t first, int count, float* to) {
  for (int i = 0; i < count; ++i, to += weight.columns) {
    const std::int64_t row = weight.first_row + first + i;
    const std::int64_t at = row * weight.stored_columns + weight.first_column;
    switch (weight.format) {
      case WeightFormat::f32:
        std::memcpy(to, weight.data + 4 * at, 4 * static_cast<std::size_t>(weight.columns));
        break;
      case WeightFormat::bf16:
        convert_bf16(weight.data + 2 * at, weight.columns, to);
        break;
      case WeightFormat::fp8:
        dequantize_fp8_row(weight, row, to);
        break;
      case WeightFormat::fp4:
        convert_e2m1(weight.data + at / 2,
                     weight.scales + row * weight.scale_columns + weight.first_column / kFp4Group,
                     weight.columns, to);
        break;
    }
  }
}

}  // namespace ingot::reference
