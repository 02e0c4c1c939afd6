#include "src/reference/kernels.hpp"

#include <algorithm>

#include "src/reference/lanes.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::reference {
namespace {

/// A register block: X_ROWS × W_ROWS dot products side by side.
template <int X_ROWS, int W_ROWS>
INGOT_LANE_OP void dot_block(const float* const* x, const float* w, int k, float* const* y,
                             int column) {
  Lanes sums[X_ROWS][W_ROWS] = {};
  for (int i = 0; i < k; i += kLanes) {
    Lanes a[X_ROWS];
    INGOT_UNROLL
    for (int r = 0; r < X_ROWS; ++r)
      load(a[r], x[r] + i);
    INGOT_UNROLL
    for (int c = 0; c < W_ROWS; ++c) {
      Lanes b;
      load(b, w + static_cast<std::ptrdiff_t>(column + c) * k + i);
      INGOT_UNROLL
      for (int r = 0; r < X_ROWS; ++r)
        sums[r][c] += a[r] * b;
    }
  }
  INGOT_UNROLL
  for (int r = 0; r < X_ROWS; ++r) {
    if constexpr (W_ROWS == 4) {
      fold_four(sums[r], y[r] + column);
    } else {
      INGOT_UNROLL
      for (int c = 0; c < W_ROWS; ++c) {
        y[r][column + c] = fold(sums[r][c]);
      }
    }
  }
}

template <int X_ROWS>
INGOT_LANE_OP void dot_columns(const float* const* x, const float* w, int w_rows, int k,
                               float* const* y) {
  int column = 0;
  for (; column + 4 <= w_rows; column += 4)
    dot_block<X_ROWS, 4>(x, w, k, y, column);
  for (; column < w_rows; ++column)
    dot_block<X_ROWS, 1>(x, w, k, y, column);
}

template <int ROWS, int VECTORS>
INGOT_LANE_OP void sum_block(const float* weights, int weight_stride, const float* values,
                             int count, int width, float* out) {
  Lanes sums[ROWS][VECTORS] = {};
  for (int j = 0; j < count; ++j) {
    const float* value = values + static_cast<std::ptrdiff_t>(j) * width;
    INGOT_UNROLL
    for (int v = 0; v < VECTORS; ++v) {
      Lanes b;
      load(b, value + v * kLanes);
      INGOT_UNROLL
      for (int r = 0; r < ROWS; ++r)
        sums[r][v] += weights[r * weight_stride + j] * b;
    }
  }
  INGOT_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    INGOT_UNROLL
    for (int v = 0; v < VECTORS; ++v) {
      store(out + static_cast<std::ptrdiff_t>(r) * width + v * kLanes, sums[r][v]);
    }
  }
}

template <int ROWS>
INGOT_LANE_OP void sum_columns(const float* weights, int weight_stride, const float* values,
                               int count, int width, float* out) {
  int at = 0;
  for (; at + 4 * kLanes <= width; at += 4 * kLanes) {
    sum_block<ROWS, 4>(weights, weight_stride, values + at, count, width, out + at);
  }
  for (; at < width; at += kLanes) {
    sum_block<ROWS, 1>(weights, weight_stride, values + at, count, width, out + at);
  }
}

}  // namespace

INGOT_TARGET_CLONES
void dot_rows(const float* const* x, int x_rows, const float* w, int w_rows, int k,
              float* const* y) {
  int row = 0;
  for (; row + 4 <= x_rows; row += 4)
    dot_columns<4>(x + row, w, w_rows, k, y + row);
  for (; row < x_rows; ++row)
    dot_columns<1>(x + row, w, w_rows, k, y + row);
}

INGOT_TARGET_CLONES
float dot(const float* x, const float* y, int k) {
  Lanes sum = {};
  for (int i = 0; i < k; i += kLanes) {
    Lanes a;
    Lanes b;
    load(a, x + i);
    load(b, y + i);
    sum += a * b;
  }
  return fold(sum);
}

INGOT_TARGET_CLONES
float sum_of_bf16_squares(const float* x, int k) {
  Lanes sum = {};
  for (int i = 0; i < k; i += kLanes) {
    Lanes a;
    load(a, x + i);
    a *= a;
    round_bf16(a);
    sum += a;
  }
  return fold(sum);
}

INGOT_TARGET_CLONES
void weighted_sums(const float* weights, int weight_stride, int rows, const float* values,
                   int count, int width, float* out) {
  int row = 0;
  for (; row + 4 <= rows; row += 4) {
    sum_columns<4>(weights + static_cast<std::ptrdiff_t>(row) * weight_stride, weight_stride,
                   values, count, width, out + static_cast<std::ptrdiff_t>(row) * width);
  }
  for (; row < rows; ++row) {
    sum_columns<1>(weights + static_cast<std::ptrdiff_t>(row) * weight_stride, weight_stride,
                   values, count, width, out + static_cast<std::ptrdiff_t>(row) * width);
  }
}

INGOT_TARGET_CLONES
void convert_bf16(const std::uint16_t* from, int k, float* to) {
  for (int i = 0; i < k; i += kLanes) {
    Lanes v;
    load_bf16(v, from + i);
    store(to + i, v);
  }
}

INGOT_TARGET_CLONES
void convert_bf16(const std::byte* from, int k, float* to) {
  for (int i = 0; i < k; i += kLanes) {
    Lanes v;
    load_bf16(v, from + 2 * static_cast<std::ptrdiff_t>(i));
    store(to + i, v);
  }
}

INGOT_TARGET_CLONES
void convert_e4m3(const std::byte* from, std::int64_t stride, int rows, std::int64_t first_column,
                  int columns, const std::uint8_t* scales, float* to) {
  for (int r = 0; r < rows; ++r, from += stride) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(from);
    for (int i = 0; i < columns;) {
      const std::int64_t column = first_column + i;
      const float scale = e8m0_value(scales[column / kFp8Block]);
      const auto left = static_cast<int>(kFp8Block - column % kFp8Block);
      for (const int end = std::min(columns, i + left); i < end; i += kLanes) {
        Lanes v;
        load_e4m3(v, bytes + i);
        v *= scale;
        store(to, v);
        to += kLanes;
      }
    }
  }
}

INGOT_TARGET_CLONES
void convert_e2m1(const std::byte* from, const std::uint8_t* scales, int k, float* to) {
  for (int i = 0; i < k; i += kLanes) {
    Lanes v;
    load_e2m1(v, reinterpret_cast<const std::uint8_t*>(from) + i / 2);
    v *= e8m0_value(scales[i / kFp4Group]);
    store(to + i, v);
  }
}

INGOT_TARGET_CLONES
void weighted_relu_sums(const float* x, int stride, const float* weights, int rows, int count,
                        float* sums) {
  for (int j = 0; j < count; j += kLanes) {
    Lanes sum = {};
    for (int r = 0; r < rows; ++r) {
      Lanes v;
      load(v, x + static_cast<std::ptrdiff_t>(r) * stride + j);
      v = v < 0 ? Lanes{} : v;
      sum += weights[r] * v;
    }
    float values[kLanes];
    store(values, sum);
    std::copy_n(values, std::min(kLanes, count - j), sums + j);
  }
}

INGOT_TARGET_CLONES
void divide_to_bf16(float* x, float divisor, int k) {
  for (int i = 0; i < k; i += kLanes) {
    Lanes v;
    load(v, x + i);
    v /= divisor;
    round_bf16(v);
    store(x + i, v);
  }
}

INGOT_TARGET_CLONES
void round_bf16(std::span<float> x) {
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    Lanes v;
    load(v, &x[i]);
    round_bf16(v);
    store(&x[i], v);
  }
  for (; i < x.size(); ++i)
    x[i] = bf16_round(x[i]);
}

INGOT_TARGET_CLONES
void add_scaled_bf16(const float* x, float scale, const float* addend, int k, float* y) {
  for (int i = 0; i < k; i += kLanes) {
    Lanes v;
    Lanes a;
    load(v, x + i);
    load(a, addend + i);
    v = scale * v + a;
    round_bf16(v);
    store(y + i, v);
  }
}

}  // namespace ingot::reference
