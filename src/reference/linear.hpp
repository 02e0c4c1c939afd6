#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/reference/thread_pool.hpp"
#include "src/reference/weight_matrix.hpp"

/// Linear layers: y = x · Wᵀ, no bias. Source: model specification section 3.1.
/// Rows of x are independent: a row's result does not depend on the other rows of the call.
namespace ingot::reference {

/// y in fp32, unrounded.
/// @param x  [rows, weight.columns]
/// @param y  [rows, weight.rows]
void linear_f32(ThreadPool& pool, const WeightMatrix& weight, std::span<const float> x,
                std::span<float> y);

/// y rounded to bf16.
void linear_bf16(ThreadPool& pool, const WeightMatrix& weight, std::span<const float> x,
                 std::span<float> y);

/// Output rows [begin, end) of the weight for scattered rows of x, on the calling thread, fp32.
/// @param x  pointers to [weight.columns] floats
/// @param y  pointers to rows of which the elements [begin, end) are written; one for each x
void linear_rows(const WeightMatrix& weight, std::int64_t begin, std::int64_t end,
                 std::span<const float* const> x, std::span<float* const> y);

/// Cost of a linear for `x_rows` rows of x, dequantisation included, in multiply-adds.
std::int64_t linear_work(const WeightMatrix& weight, std::int64_t x_rows);

/// Work in multiply-adds that is worth handing to another thread (tens of microseconds).
inline constexpr std::int64_t kThreadWork = 1'000'000;

/// Output rows that make a task of kThreadWork for `x_rows` rows of x.
std::int64_t linear_grain(const WeightMatrix& weight, std::int64_t x_rows);

/// A copy of x as an FP8 or FP4 linear takes it: e4m3 with a power-of-two scale per 128.
/// @param x      [rows, width], width a multiple of 128
std::vector<float> act_quantized(ThreadPool& pool, std::span<const float> x, int width);

}  // namespace ingot::reference
