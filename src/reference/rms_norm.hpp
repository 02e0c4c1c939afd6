#pragma once

#include <span>

#include "src/reference/thread_pool.hpp"

namespace ingot::reference {

/// 1 / sqrt(mean(x²) + eps) in fp32, over the whole of x (a multiple of 16).
float inverse_rms(std::span<const float> x, float eps);

/// y = bf16(w · (x · inverse_rms(x))), one rounding. Source: model specification section 3.2.
/// In place allowed.
/// @param x  one row; w and y as long
void rms_norm_row(std::span<const float> x, std::span<const float> w, float eps,
                  std::span<float> y);

/// rms_norm_row of each row of x [rows, w.size()], in place.
void rms_norm(ThreadPool& pool, std::span<float> x, std::span<const float> w, float eps);

/// The unweighted norm of a query head, each step rounded to bf16 as the official code computes it:
/// square, mean, mean + eps, rsqrt, product. In place. Source: section 3.6 step 3.
/// @param q  one head, bf16 values
void head_norm(std::span<float> q, float eps);

}  // namespace ingot::reference
