#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// The inner loops that carry the reference engine's time, each with one summation order.
/// Lengths (`k`, `width`) are multiples of 16. Pointers need no alignment.
namespace ingot::reference {

/// y[r][c] = x[r] · w[c] in fp32, for each r < x_rows and c < w_rows.
/// @param x  x_rows pointers to [k] floats
/// @param w  [w_rows, k]
/// @param y  x_rows pointers to [w_rows] floats
void dot_rows(const float* const* x, int x_rows, const float* w, int w_rows, int k,
              float* const* y);

/// x · y in fp32, [k] each; the same sum as dot_rows makes.
float dot(const float* x, const float* y, int k);

/// Σ bf16(x²) in fp32, the order of dot.
float sum_of_bf16_squares(const float* x, int k);

/// out[r] = Σ_j weights[r][j] · values[j], j ascending, fp32.
/// @param weights  [rows, weight_stride]
/// @param values   [count, width]
/// @param out      [rows, width]
void weighted_sums(const float* weights, int weight_stride, int rows, const float* values,
                   int count, int width, float* out);

/// Weight tiles as fp32. `from` is the stored row from its first wanted element on.
void convert_bf16(const std::byte* from, int k, float* to);
/// Rows of e4m3 that share a row of E8M0 scales, one scale per 128 columns.
/// @param from      the first row's element at column `first_column` of the stored matrix
/// @param stride    bytes from row to row
/// @param scales    the stored row of scales
/// @param to        [rows, columns]
void convert_e4m3(const std::byte* from, std::int64_t stride, int rows, std::int64_t first_column,
                  int columns, const std::uint8_t* scales, float* to);
/// Two values a byte, low nibble first; scales are E8M0, one per 32 values.
void convert_e2m1(const std::byte* from, const std::uint8_t* scales, int k, float* to);
void convert_bf16(const std::uint16_t* from, int k, float* to);

/// Σ_r weights[r] · max(x[r][j], 0) for each j < count, r ascending; NaN stays NaN.
/// @param x  [rows, stride], stride a multiple of 16, of which `count` columns are used
void weighted_relu_sums(const float* x, int stride, const float* weights, int rows, int count,
                        float* sums);
/// x ← bf16(x / divisor), [k].
void divide_to_bf16(float* x, float divisor, int k);
/// Any length.
void round_bf16(std::span<float> x);
/// y = bf16(scale · x + addend), two roundings to fp32 before; [k] each.
void add_scaled_bf16(const float* x, float scale, const float* addend, int k, float* y);

}  // namespace ingot::reference
