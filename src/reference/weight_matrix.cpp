#include "src/reference/weight_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/reference/kernels.hpp"
#include "src/reference/lanes.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::reference {
namespace {

void dequantize_fp8(const WeightMatrix& weight, std::int64_t first, int count, float* to) {
  const std::int64_t end = weight.first_row + first + count;
  for (std::int64_t row = weight.first_row + first; row < end;) {
    const std::int64_t block = row / kFp8Block;
    const auto rows = static_cast<int>(std::min((block + 1) * kFp8Block, end) - row);
    convert_e4m3(weight.data + row * weight.stored_columns + weight.first_column,
                 weight.stored_columns, rows, weight.first_column, weight.columns,
                 weight.scales + block * weight.scale_columns, to);
    row += rows;
    to += static_cast<std::ptrdiff_t>(rows) * weight.columns;
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
  if (weight.format == WeightFormat::fp8) {
    dequantize_fp8(weight, first, count, to);
    return;
  }
  for (int i = 0; i < count; ++i, to += weight.columns) {
    const std::int64_t row = weight.first_row + first + i;
    const std::int64_t at = row * weight.stored_columns + weight.first_column;
    if (weight.format == WeightFormat::f32) {
      std::memcpy(to, weight.data + 4 * at, 4 * static_cast<std::size_t>(weight.columns));
    } else if (weight.format == WeightFormat::bf16) {
      convert_bf16(weight.data + 2 * at, weight.columns, to);
    } else {
      convert_e2m1(weight.data + at / 2,
                   weight.scales + row * weight.scale_columns + weight.first_column / kFp4Group,
                   weight.columns, to);
    }
  }
}

}  // namespace ingot::reference
